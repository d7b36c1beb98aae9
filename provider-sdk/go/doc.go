// Package sdk is what a provider team builds a sidecar with: it serves the CloudProvider contract of a cloud controller
// manager, and leaves to the team what only it can know, its cloud.
//
// A provider implements Instances, and LoadBalancers, Routes, Volumes or Clusters if its cloud has them; New checks that
// all fits together; Main or Serve serves it over a Unix socket with checked peers, or over TCP with mutual TLS. Errors are
// made by package fault, answers for instances by Found, Absent, NotOwned and Unknown.
//
// What happens before a method is called, and so need not be done in it: the peer is checked, a former leader and a stale
// revision are refused, the request has the contract's shape (a cluster uid, unique keys, not more items than advertised),
// page sizes are within bounds. What happens round it: panics become INTERNAL_ERROR, errors of other kinds too, a mutation
// is finished though its caller is gone, logs and errors are scrubbed, and everything is measured.
//
// It runs on Linux.
package sdk

// Version of this SDK, told in Discovery.
const Version = "0.1.0"

const sdkName = "cloudprovider-sdk (go)"
