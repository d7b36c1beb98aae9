// The Unix socket, in a directory that others cannot enter: gRPC for Node.js cannot identify the caller.
import { chmodSync, lstatSync, mkdirSync, statSync, unlinkSync } from 'node:fs';
import { connect } from 'node:net';
import { dirname } from 'node:path';
import grpc from '@grpc/grpc-js';

/** Listens on the socket of `unix:///path`. Replaces a stale socket, but refuses one that answers. */
export async function listen(server, endpoint) {
  const path = /^unix:(?:\/\/)?(\/.+)$/.exec(endpoint)?.[1];
  if (!path) throw new Error(`${endpoint} is not an endpoint; use unix:///path/of/the/socket`);
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const mode = statSync(dirname(path)).mode & 0o777;
  if (mode & 0o027) throw new Error(`${dirname(path)} has mode 0${mode.toString(8)}, so others could reach the socket: use 0700 or 0750`);
  if (lstatSync(path, { throwIfNoEntry: false })) {
    if (await answers(path)) throw new Error(`${path} is in use, or not a socket: choose another --endpoint`);
    unlinkSync(path);
  }
  await new Promise((resolve, reject) => {
    const credentials = grpc.ServerCredentials.createInsecure();
    server.bindAsync(`unix:${path}`, credentials, (error) => (error ? reject(error) : resolve()));
  });
  chmodSync(path, 0o660);
}

/** Only a refused connection proves that a socket is stale. */
function answers(path) {
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.on('connect', () => probe.end(() => resolve(true)));
    probe.on('error', ({ code }) => resolve(code !== 'ECONNREFUSED' || !lstatSync(path).isSocket()));
  });
}
