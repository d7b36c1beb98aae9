// Starts the provider as a process, and calls it over its socket.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';

const folder = join(import.meta.dirname, '..');
const files = ['ccm/discovery/v1/discovery.proto', 'ccm/cloudprovider/v1alpha1/instances.proto'];
const loaded = loader.loadSync(files, { includeDirs: [join(folder, '../../proto')], keepCase: true, enums: String, defaults: true });
const { ccm } = grpc.loadPackageDefinition(loaded);

async function serve(t) {
  const place = mkdtempSync(join(tmpdir(), 'stubs-'));
  const [socket, machines] = [join(place, 'ccm/provider.sock'), join(place, 'machines.json')];
  cpSync(join(folder, 'machines.json'), machines);
  const provider = spawn(process.execPath, ['provider.js', `--endpoint=unix://${socket}`, `--machines=${machines}`], { cwd: folder });
  t.after(() => provider.kill('SIGKILL'));
  await once(provider.stderr, 'data');
  const client = (service) => {
    const made = new service(`unix:${socket}`, grpc.credentials.createInsecure());
    t.after(() => made.close());
    return (method, request) => new Promise((resolve) => {
      made[method](request, { deadline: Date.now() + 20_000 }, (error, answer) => resolve(error ?? answer));
    });
  };
  return { provider, socket, machines, discovery: client(ccm.discovery.v1.Discovery), instances: client(ccm.cloudprovider.v1alpha1.Instances) };
}

const asking = (...nodes) => ({ cluster: { uid: 'c' }, queries: nodes.map((node, at) => ({ key: `${at}`, node })) });
const reason = (error) => /\b[A-Z]+(_[A-Z]+)+\b/.exec(error.metadata.get('grpc-status-details-bin')[0])[0];

test('instances are found by provider ID, then by name', async (t) => {
  const { instances, socket } = await serve(t);
  assert.equal(statSync(socket).mode & 0o777, 0o660);
  const nodes = [{ name: 'x', provider_id: 'stub://m-1' }, { name: 'node-2' }, { name: 'x' }, { name: 'x', provider_id: 'aws://1' }];
  const { results } = await instances('BatchGetInstances', asking(...nodes));
  const states = results.map(({ state, authoritative }) => [state.replace('INSTANCE_STATE_', ''), authoritative]);
  assert.deepEqual(states, [['RUNNING', true], ['STOPPED', true], ['ABSENT', false], ['NOT_OWNED', false]]);
  assert.equal(results[0].instance.provider_id, 'stub://m-1');
});

test('malformed requests are refused with a reason', async (t) => {
  const { instances } = await serve(t);
  const doubled = { cluster: { uid: 'c' }, queries: [0, 1].map(() => ({ key: 'k', node: { name: 'n' } })) };
  const many = asking(...Array.from({ length: 501 }, () => ({ name: 'n' })));
  for (const [request, wanted] of [[{}, 'INVALID_ARGUMENT_SHAPE'], [asking(), 'INVALID_ARGUMENT_SHAPE'], [asking({}), 'INVALID_ARGUMENT_SHAPE'], [doubled, 'INVALID_ARGUMENT_SHAPE'], [many, 'BATCH_TOO_LARGE']]) {
    const refused = await instances('BatchGetInstances', request);
    assert.equal(refused.code, grpc.status.INVALID_ARGUMENT);
    assert.equal(reason(refused), wanted);
  }
});

test('an unreadable file is an outage, and no instance is absent', async (t) => {
  const { instances, machines } = await serve(t);
  for (const text of ['', '{"m-1":', '[]', 'null']) {
    writeFileSync(machines, text);
    assert.equal(reason(await instances('BatchGetInstances', asking({ name: 'node-9' }))), 'CLOUD_API_UNAVAILABLE');
  }
  writeFileSync(machines, '{"m-1": {"node": "node-1", "state": "RUNNING"}}'); // A defect: no addresses.
  const defect = await instances('BatchGetInstances', asking({ name: 'node-1' }));
  assert.equal(reason(defect), 'INTERNAL_ERROR');
  assert.equal(defect.details, 'internal error');
});

test('each start gets its own process epoch, and a stop is clean', async (t) => {
  const [one, other] = [await serve(t), await serve(t)];
  const epochs = [await one.discovery('GetInfo', {}), await other.discovery('GetInfo', {})].map((info) => info.process_epoch);
  assert.notEqual(epochs[0], epochs[1]);
  one.provider.kill('SIGTERM');
  assert.deepEqual(await once(one.provider, 'exit'), [0, null]);
  assert.equal(existsSync(one.socket), false);
});
