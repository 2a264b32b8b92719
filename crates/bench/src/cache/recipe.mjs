// The cache article's recipe: GET of JSON.stringify(originalUrl), else the tables behind it and
// SETEX. Arguments: where the npm package is, the Redis's port, the tables' port, seconds.
import http from 'node:http';
import { createRequire } from 'node:module';

const [packages, redisPort, tablesPort, seconds] = process.argv.slice(2);
const { createClient } = createRequire(`${packages}/package.json`)('redis');
const client = createClient({ socket: { host: '127.0.0.1', port: Number(redisPort) } });
client.on('error', (error) => console.error(error));
await client.connect();
const agent = new http.Agent({ keepAlive: true });

function execute(path) {
  return new Promise((resolve, reject) => {
    const asked = http.get({ host: '127.0.0.1', port: Number(tablesPort), path, agent }, (answer) => {
      const pieces = [];
      answer.on('data', (piece) => pieces.push(piece));
      answer.on('end', () => {
        const body = Buffer.concat(pieces).toString();
        if (answer.statusCode === 200) resolve(JSON.parse(body));
        else reject(new Error(body));
      });
    });
    asked.on('error', reject);
  });
}

async function read(url) {
  const key = JSON.stringify(url);
  const kept = await client.get(key);
  if (kept) return JSON.parse(kept);
  const result = await execute(url);
  await client.setEx(key, Number(seconds), JSON.stringify(result));
  return result;
}

const server = http.createServer((request, response) => {
  read(request.url).then(
    (result) => {
      const body = JSON.stringify(result);
      response.writeHead(200, {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
      });
      response.end(body);
    },
    (error) => {
      response.writeHead(500, { 'content-type': 'text/plain' });
      response.end(String(error));
    },
  );
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
