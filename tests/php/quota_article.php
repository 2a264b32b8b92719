<?php
/**
 * The quota article's flow: a monthly quota kept in the keyspace, records kept in MariaDB.
 *
 * For each request: read the counter, stop at the threshold, else insert a record and increment
 * the counter; when the loop stops, write the counter back to SQL. The article's variant without
 * a keyspace, where SQL holds the counter, runs beside it as the yardstick, so that a run prints
 * both times. One request more than the quota is made: the last one must be turned away.
 *
 * Checked exactly: 5000 records, numbered without a gap; the counter at 5000 in both places; and
 * a second session that starts over quota stores nothing.
 */

declare(strict_types=1);

require __DIR__ . '/checks.php';

const QUOTA = 5000;
const ORGANISATION = 1;
const COUNTER_KEY = 'quota:organisation:1';

/** Where a session keeps its running count: the one difference between the two variants. */
interface Counter
{
    public function read(): int;

    public function increment(): void;

    /** Called when the session ends. */
    public function flush(): void;
}

final class KeyspaceCounter implements Counter
{
    public function __construct(private Predis\Client $keyspace, private mysqli $sql)
    {
    }

    public function read(): int
    {
        return (int) $this->keyspace->get(COUNTER_KEY);
    }

    public function increment(): void
    {
        $this->keyspace->incr(COUNTER_KEY);
    }

    public function flush(): void
    {
        $update = $this->sql->prepare('UPDATE counter SET counter = ? WHERE OrganisationID = ?');
        $update->execute([$this->read(), ORGANISATION]);
    }
}

final class SqlCounter implements Counter
{
    public function __construct(private mysqli $sql)
    {
    }

    public function read(): int
    {
        return sqlCounter($this->sql);
    }

    public function increment(): void
    {
        $where = 'WHERE OrganisationID = ' . ORGANISATION;
        $this->sql->query("UPDATE counter SET counter = counter + 1 $where");
    }

    public function flush(): void
    {
    }
}

function openDatabase(): mysqli
{
    mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
    $sql = new mysqli(null, 'root', '', null, 0, setting('MARIADB_SOCKET'));
    $sql->query('CREATE DATABASE IF NOT EXISTS quota_article');
    $sql->select_db('quota_article');
    $sql->query('DROP TABLE IF EXISTS counter, storage');
    $sql->query('CREATE TABLE counter (OrganisationID INT NOT NULL PRIMARY KEY,
        counter INT NOT NULL) ENGINE=InnoDB');
    $sql->query('CREATE TABLE storage (StorageID INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        DateTimeReceived TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
        `index` INT NOT NULL) ENGINE=InnoDB');
    return $sql;
}

function resetTables(mysqli $sql): void
{
    $sql->query('TRUNCATE storage');
    $sql->query('REPLACE INTO counter VALUES (' . ORGANISATION . ', 0)');
}

function sqlCounter(mysqli $sql): int
{
    $where = 'WHERE OrganisationID = ' . ORGANISATION;
    return (int) $sql->query("SELECT counter FROM counter $where")->fetch_row()[0];
}

/** Serves requests until one is over quota; says how many were served and turned away. */
function runSession(Counter $counter, mysqli $sql, int $requests): array
{
    $served = 0;
    $refused = 0;
    for ($index = 0; $index < $requests; $index++) {
        if ($counter->read() >= QUOTA) {
            $refused++;
            break;
        }
        $sql->query("INSERT INTO storage (`index`) VALUES ($index)");
        $counter->increment();
        $served++;
    }
    $counter->flush();
    return [$served, $refused];
}

function checkSession(Checks $checks, mysqli $sql, Counter $counter, string $name): float
{
    resetTables($sql);
    $start = secondsNow();
    [$served, $refused] = runSession($counter, $sql, QUOTA + 1);
    $seconds = secondsNow() - $start;
    $checks->same(QUOTA, $served, "$name: requests served");
    $checks->same(1, $refused, "$name: the request over quota is turned away");
    $stored = 'SELECT COUNT(*), COUNT(DISTINCT `index`), MIN(`index`), MAX(`index`) FROM storage';
    $row = array_map('intval', $sql->query($stored)->fetch_row());
    $checks->same([QUOTA, QUOTA, 0, QUOTA - 1], $row, "$name: rows, distinct, least, greatest");
    $checks->same(QUOTA, sqlCounter($sql), "$name: the counter in SQL");
    $checks->same([0, 1], runSession($counter, $sql, 10), "$name: the next session starts over");
    $rows = (int) $sql->query('SELECT COUNT(*) FROM storage')->fetch_row()[0];
    $checks->same(QUOTA, $rows, "$name: nothing is stored over quota");
    printf("%-28s %7.0f ms, %.3f ms a record\n", $name, $seconds * 1e3, $seconds * 1e3 / QUOTA);
    return $seconds;
}

$checks = new Checks();
$sql = openDatabase();
$keyspace = predisClient();

$checks->same('OK', (string) $keyspace->set(COUNTER_KEY, '0'), 'the counter starts at 0');
checkSession($checks, $sql, new KeyspaceCounter($keyspace, $sql), 'counter in the keyspace');
$checks->same((string) QUOTA, $keyspace->get(COUNTER_KEY), 'the counter in the keyspace');
checkSession($checks, $sql, new SqlCounter($sql), 'counter in SQL');
$checks->finish();
