//! A real etcd and kube-apiserver on free loopback ports, for tests and the demo.
