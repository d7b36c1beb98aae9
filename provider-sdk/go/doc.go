// Package sdk serves the CloudProvider contract of a cloud controller manager as a sidecar, and leaves to its user only
// what is specific to a cloud.
//
// A provider implements Instances, and LoadBalancers, Routes, Volumes or Clusters if its cloud has them; New checks
// that everything is consistent; Main or Serve serves it over a Unix socket with checked peers, or over TCP with mutual
// TLS. Package fault creates errors; Found, Absent, NotOwned and Unknown create results for instances.
//
// Before it calls a method, the SDK checks the peer, refuses a former leader and a stale revision, checks the shape of
// the request (a cluster uid, unique keys, no more items than advertised) and clamps page sizes. Around the method, it
// turns panics and unknown errors into INTERNAL_ERROR, lets a mutation finish if its caller is gone, redacts logs and
// errors, and measures every call.
//
// It runs on Linux.
package sdk

// Version of this SDK, reported by Discovery.
const Version = "0.1.0"

const sdkName = "cloudprovider-sdk (go)"
