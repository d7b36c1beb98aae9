// The hooks of the conformance suite: edit the machines file $MACHINES as an operator would.
import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmdirSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const { MACHINES: file, CONFORMANCE_NAME: node, CONFORMANCE_PROVIDER_ID: providerId } = process.env;

function change(machines) {
  const id = providerId?.replace('stub://', '') || Object.keys(machines).find((one) => machines[one].node === node);
  switch (process.argv[2]) {
    case 'create': {
      const made = `${node}-${randomUUID().slice(0, 8)}`;
      const addresses = [`10.1.0.${(Object.keys(machines).length % 250) + 1}`];
      machines[made] = { node, state: 'RUNNING', type: 'small', zone: 'rack-1', addresses };
      console.log(JSON.stringify({ name: node, provider_id: `stub://${made}`, addresses }));
      break;
    }
    case 'terminate':
      delete machines[id];
      break;
    default:
      machines[id].state = process.argv[2];
  }
  writeFileSync(`${file}.new`, JSON.stringify(machines));
  renameSync(`${file}.new`, file);
}

// Hooks may run concurrently, and only one of them can create the directory: it is the lock.
for (let made = false; !made; ) {
  try {
    mkdirSync(`${file}.lock`);
    made = true;
  } catch {
    await sleep(20);
  }
}
try {
  if (process.argv[2] === 'cut') renameSync(file, `${file}.away`);
  else if (process.argv[2] !== 'restore') change(JSON.parse(readFileSync(file, 'utf8')));
  else if (existsSync(`${file}.away`)) renameSync(`${file}.away`, file);
} finally {
  rmdirSync(`${file}.lock`);
}
