// A provider without an SDK: gRPC for Node.js, the contract's unmodified .proto files, and a JSON file of machines.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';
import { HealthImplementation } from 'grpc-health-check';
import { listen } from './socket.js';
import { errorTrailers } from './status.js';

const PREFIX = 'stub://';
const MAX_BATCH = 500;
const MAX_BYTES = 16 << 20;

const { values: flags } = parseArgs({
  options: {
    endpoint: { type: 'string', default: process.env.CLOUDPROVIDER_ENDPOINT ?? 'unix:///run/cloudprovider/provider.sock' },
    machines: { type: 'string', default: 'machines.json' },
    protos: { type: 'string', default: join(import.meta.dirname, '../../proto') },
  },
});

const files = ['discovery/v1/discovery', 'cloudprovider/v1alpha1/cloud_provider', 'cloudprovider/v1alpha1/instances'];
const loaded = loader.loadSync(files.map((file) => `ccm/${file}.proto`), {
  includeDirs: [flags.protos], keepCase: true, enums: String, longs: String, defaults: true,
});
const { ccm } = grpc.loadPackageDefinition(loaded);
const { CloudProvider, Instances } = ccm.cloudprovider.v1alpha1;
const { Discovery } = ccm.discovery.v1;

// Identifies this process: hosts tie their tokens and caches to it.
const processEpoch = randomUUID();

/** An error of the contract: a reason, its gRPC code, and a message that does not vary from call to call. */
class Refusal extends Error {
  constructor(reason, code, message, metadata = {}) {
    super(message);
    Object.assign(this, { reason, code, metadata });
  }
}
const outOfShape = (field, why) => new Refusal('INVALID_ARGUMENT_SHAPE', grpc.status.INVALID_ARGUMENT, `${field} ${why}`);

/** Answers a call with the method's result or with an error of the contract. The details of a defect go to the log, not to the caller. */
const answering = (method) => (call, callback) => {
  try {
    callback(null, method(call.request));
  } catch (error) {
    if (!(error instanceof Refusal)) console.error('the method failed', error);
    const told = error instanceof Refusal ? error : new Refusal('INTERNAL_ERROR', grpc.status.INTERNAL, 'internal error');
    callback({ code: told.code, details: told.message, metadata: errorTrailers(told) });
  }
};

/** All machines by ID. An unreadable file is an outage: it must not make any instance look absent. */
function machines() {
  try {
    const found = JSON.parse(readFileSync(flags.machines, 'utf8'));
    if (Object.getPrototypeOf(found) !== Object.prototype) throw new TypeError('the file is not an object of machines by ID');
    return new Map(Object.entries(found));
  } catch (error) {
    console.error(`cannot read ${flags.machines}`, error.message);
    throw new Refusal('CLOUD_API_UNAVAILABLE', grpc.status.UNAVAILABLE, `cannot read ${flags.machines}`);
  }
}

function short(field, value, most) {
  if (Buffer.byteLength(value) > most) throw outOfShape(field, `has more than ${most} bytes`);
}

function text(field, value, most) {
  if (!value) throw outOfShape(field, 'is missing');
  short(field, value, most);
}

/** Shape first, existence last: the contract's order. */
function check({ cluster, queries }) {
  text('cluster.uid', cluster?.uid, 64);
  if (queries.length === 0) throw outOfShape('queries', 'is empty');
  if (queries.length > MAX_BATCH) {
    throw new Refusal('BATCH_TOO_LARGE', grpc.status.INVALID_ARGUMENT, `more than ${MAX_BATCH} items`, { max: `${MAX_BATCH}` });
  }
  const seen = new Set();
  queries.forEach(({ key, node }, at) => {
    text(`queries[${at}].key`, key, 1024);
    text(`queries[${at}].node.name`, node?.name, 253);
    short(`queries[${at}].node.provider_id`, node.provider_id, 1024);
    if (seen.has(key)) throw outOfShape(`queries[${at}].key`, 'is a duplicate');
    seen.add(key);
  });
}

/** Looks up by provider ID if the node has one, else by name: a new node has no provider ID yet. */
function lookUp(all, { key, node }) {
  const isOurs = node.provider_id.startsWith(PREFIX) && node.provider_id !== PREFIX;
  if (node.provider_id && !isOurs) return { key, state: 'INSTANCE_STATE_NOT_OWNED' };
  const named = [...all.keys()].filter((id) => all.get(id).node === node.name);
  if (!node.provider_id && named.length > 1) {
    return { key, error: { reason: 'ERROR_REASON_INSTANCE_AMBIGUOUS', message: `${named.length} machines have the name ${node.name}` } };
  }
  const id = node.provider_id ? node.provider_id.slice(PREFIX.length) : named[0];
  const looked = { key, authoritative: true, observed_at: { seconds: Math.floor(Date.now() / 1000) } };
  const machine = all.get(id);
  // A lookup by name alone may miss an instance: only a provider ID proves absence.
  if (!machine) return { ...looked, authoritative: node.provider_id !== '', state: 'INSTANCE_STATE_ABSENT' };
  const addresses = machine.addresses.map((address) => ({ type: 'NODE_ADDRESS_TYPE_INTERNAL_IP', address }));
  const instance = { provider_id: PREFIX + id, name: machine.node, instance_type: machine.type, zone: machine.zone, addresses };
  return { ...looked, state: `INSTANCE_STATE_${machine.state}`, instance };
}

const cloudReachable = () => {
  try {
    machines();
    return 'CONDITION_STATUS_TRUE';
  } catch {
    return 'CONDITION_STATUS_FALSE';
  }
};

const services = [Discovery, CloudProvider, Instances].map(({ service }) => Object.values(service)[0].path.split('/')[1]);
const health = new HealthImplementation(Object.fromEntries(['', ...services].map((name) => [name, 'SERVING'])));
const server = new grpc.Server({ 'grpc.max_receive_message_length': MAX_BYTES, 'grpc.max_send_message_length': MAX_BYTES });
health.addToServer(server);
server.addService(Discovery.service, {
  GetInfo: answering(() => ({
    name: 'stub',
    provider_id_prefixes: [PREFIX],
    services: [...services, 'grpc.health.v1.Health'],
    process_epoch: processEpoch,
  })),
});
server.addService(CloudProvider.service, {
  GetCapabilities: answering(() => ({})), // No optional capabilities, and the default limits.
  GetStatus: answering(() => ({ conditions: [{ type: 'CONDITION_TYPE_CLOUD_REACHABLE', status: cloudReachable() }] })),
});
server.addService(Instances.service, {
  // gRPC answers UNIMPLEMENTED for the other RPCs, whose capabilities are not advertised.
  BatchGetInstances: answering((request) => {
    check(request);
    const all = machines();
    return { results: request.queries.map((query) => lookUp(all, query)) };
  }),
});

await listen(server, flags.endpoint);
console.error(`serving ${flags.machines} at ${flags.endpoint}`);

// On SIGTERM, report NOT_SERVING, answer the running calls, then exit.
process.once('SIGTERM', () => {
  ['', ...services].forEach((name) => health.setStatus(name, 'NOT_SERVING'));
  setTimeout(() => server.forceShutdown(), 25_000).unref();
  server.tryShutdown(() => process.exit(0));
});
