// google.rpc.ErrorInfo as gRPC carries it: a google.rpc.Status in the trailer "grpc-status-details-bin".
import grpc from '@grpc/grpc-js';
import protobuf from 'protobufjs';

const DOMAIN = 'cloudprovider.ccm';

// The messages of google/rpc that this needs, with their public field numbers; Detail is google.protobuf.Any.
const { root } = protobuf.parse(`
  syntax = "proto3";
  package google.rpc;
  message Detail { string typeUrl = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Detail details = 3; }
  message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }
`);
const Status = root.lookupType('google.rpc.Status');
const ErrorInfo = root.lookupType('google.rpc.ErrorInfo');

/** The trailers of an error that carries a reason of the contract. */
export function errorTrailers({ reason, code, message, metadata }) {
  const value = ErrorInfo.encode({ reason, domain: DOMAIN, metadata }).finish();
  const details = [{ typeUrl: 'type.googleapis.com/google.rpc.ErrorInfo', value }];
  const trailers = new grpc.Metadata();
  trailers.set('grpc-status-details-bin', Buffer.from(Status.encode({ code, message, details }).finish()));
  return trailers;
}
