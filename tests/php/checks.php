<?php
/**
 * Counts the checks of a test program written in PHP, and says where the server is.
 *
 * A failed check is printed at once and the program goes on, so that one run tells everything;
 * finish() prints the plain "N passed, N failed" line and ends with 1 where anything failed.
 */

declare(strict_types=1);

require_once 'Predis/autoload.php';

final class Checks
{
    private int $passed = 0;
    private int $failed = 0;

    public function same(mixed $expected, mixed $found, string $what): void
    {
        if ($expected === $found) {
            $this->passed++;
            return;
        }
        $this->failed++;
        $wanted = var_export($expected, true);
        printf("FAILED %s: expected %s, found %s\n", $what, $wanted, var_export($found, true));
    }

    public function true(bool $holds, string $what): void
    {
        $this->same(true, $holds, $what);
    }

    public function finish(): never
    {
        printf("%d passed, %d failed\n", $this->passed, $this->failed);
        exit($this->failed === 0 && $this->passed > 0 ? 0 : 1);
    }
}

/** A variable that with_server.py or databases.py set; the program cannot run without it. */
function setting(string $name): string
{
    $value = getenv($name);
    if ($value === false || $value === '') {
        fwrite(STDERR, "$name is not set: run this through ./test\n");
        exit(2);
    }
    return $value;
}

function predisClient(): Predis\Client
{
    return new Predis\Client([
        'scheme' => 'tcp',
        'host' => setting('FOREBAY_HOST'),
        'port' => (int) setting('FOREBAY_PORT'),
    ]);
}

function phpredisClient(): Redis
{
    $client = new Redis();
    $client->connect(setting('FOREBAY_HOST'), (int) setting('FOREBAY_PORT'), 5.0);
    return $client;
}

function secondsNow(): float
{
    return hrtime(true) / 1e9;
}
