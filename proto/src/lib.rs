//! The CloudProvider contract: generated messages, clients and servers.
