<?php
/**
 * The PHP post's measurement: 10 000 SET and GET, sent one by one and sent pipelined, by Predis
 * and by phpredis. The post counts requests; this program also checks every reply against a model
 * kept in a PHP array, for a fast wrong answer is worth nothing.
 *
 * As in the post the mix is half SET and half GET, drawn at random (from a fixed seed, so that a
 * failure repeats). Keys are fewer than requests, so that most GET find a value; some come first.
 */

declare(strict_types=1);

require __DIR__ . '/checks.php';

const REQUESTS = 10000;
const KEYS = 2500;
const PIPELINE_DEPTHS = [1, 10, 100, 1000, 10000];
const SEED = 20110125;

/** One request and the reply it must get: [key, value to set or null, expected reply]. */
function drawRequests(array &$model): array
{
    $requests = [];
    for ($number = 0; $number < REQUESTS; $number++) {
        $key = sprintf('key:%05d', mt_rand(0, KEYS - 1));
        if (mt_rand(0, 1) === 0) {
            $value = (string) mt_rand();
            $model[$key] = $value;
            $requests[] = [$key, $value, true];
        } else {
            $requests[] = [$key, null, $model[$key] ?? false];
        }
    }
    return $requests;
}

/** Sends requests with Predis, $depth at a time; replies as true, false for none, or a string. */
function runPredis(Predis\Client $client, array $requests, int $depth): array
{
    $plain = static fn ($reply) => match (true) {
        $reply === null => false,
        is_object($reply) => (string) $reply === 'OK',
        default => $reply,
    };
    $send = static fn ($to, $request) => $request[1] === null
        ? $to->get($request[0]) : $to->set($request[0], $request[1]);
    $replies = [];
    if ($depth === 1) {
        foreach ($requests as $request) {
            $replies[] = $plain($send($client, $request));
        }
        return $replies;
    }
    foreach (array_chunk($requests, $depth) as $chunk) {
        $answers = $client->pipeline(static function ($pipe) use ($chunk, $send): void {
            foreach ($chunk as $request) {
                $send($pipe, $request);
            }
        });
        array_push($replies, ...array_map($plain, $answers));
    }
    return $replies;
}

/** The same with phpredis, which gives true, false and strings by itself. */
function runPhpredis(Redis $client, array $requests, int $depth): array
{
    $replies = [];
    foreach (array_chunk($requests, $depth) as $chunk) {
        $to = $depth === 1 ? $client : $client->pipeline();
        foreach ($chunk as [$key, $value]) {
            $answer = $value === null ? $to->get($key) : $to->set($key, $value);
            if ($depth === 1) {
                $replies[] = $answer;
            }
        }
        if ($depth !== 1) {
            array_push($replies, ...$to->exec());
        }
    }
    return $replies;
}

/** One run: all replies right, and the keyspace left as the model says. */
function measure(Checks $checks, string $name, callable $flush, callable $run): void
{
    foreach (PIPELINE_DEPTHS as $depth) {
        $flush();
        mt_srand(SEED + $depth);
        $model = [];
        $requests = drawRequests($model);
        $start = secondsNow();
        $replies = $run($requests, $depth);
        $seconds = secondsNow() - $start;
        $checks->same(REQUESTS, count($replies), "$name depth $depth: replies");
        $wrong = 0;
        foreach ($requests as $number => $request) {
            $wrong += $replies[$number] === $request[2] ? 0 : 1;
        }
        $checks->same(0, $wrong, "$name depth $depth: wrong replies");
        $left = phpredisClient();
        $keys = array_map('strval', array_keys($model));
        $checks->same(count($model), $left->dbSize(), "$name depth $depth: keys left");
        $checks->same(array_values($model), $left->mget($keys), "$name depth $depth: values left");
        printf("%-9s pipeline %5d %9.0f SET/GET a second\n", $name, $depth, REQUESTS / $seconds);
    }
}

$checks = new Checks();
$predis = predisClient();
$phpredis = phpredisClient();
$flushAll = static fn () => $phpredis->flushAll();

measure($checks, 'Predis', $flushAll, fn ($requests, $depth) => runPredis(
    $predis,
    $requests,
    $depth
));
measure($checks, 'phpredis', $flushAll, fn ($requests, $depth) => runPhpredis(
    $phpredis,
    $requests,
    $depth
));

$transaction = $phpredis->multi()->set('a', '1')->incr('a')->get('a')->exec();
$checks->same([true, 2, '2'], $transaction, 'phpredis: MULTI');
$transaction = $predis->transaction(static function ($tx): void {
    $tx->set('b', '1');
    $tx->incr('b');
    $tx->get('b');
});
$checks->same([2, '2'], array_slice($transaction, 1), 'Predis: MULTI');
$binary = random_bytes(100000);
$checks->true($phpredis->set('binary', $binary), 'phpredis: SET of 100 000 random bytes');
$checks->true($predis->get('binary') === $binary, 'Predis: the same bytes back');
$checks->finish();
