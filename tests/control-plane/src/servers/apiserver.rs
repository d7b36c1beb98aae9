//! The apiserver: RBAC on, tokens and client certificates; what needs a node or a network only for machines.

use std::{net::Ipv4Addr, path::Path};

use super::{Layout, Server};
use crate::options::Options;

pub(crate) const NAME: &str = "apiserver";

/// The inputs of its command line.
#[derive(Debug)]
pub(crate) struct Apiserver<'a> {
    pub(crate) program: &'a Path,
    pub(crate) layout: &'a Layout,
    pub(crate) port: u16,
    pub(crate) options: &'a Options,
}

impl Apiserver<'_> {
    pub(crate) fn url(address: Ipv4Addr, port: u16) -> String {
        format!("https://{address}:{port}")
    }

    pub(crate) fn server(&self) -> Server {
        let server = self.audited(self.admitted(self.authenticated(self.served())));
        // Last, so that the caller's flags win.
        server.args(&self.options.apiserver_flags).env(&self.options.apiserver_env)
    }

    fn served(&self) -> Server {
        Server::new(NAME, self.program)
            .flag("etcd-servers", format!("unix://{}", self.layout.etcd_socket().display()))
            .flag("bind-address", self.address().to_string())
            .flag("advertise-address", self.address().to_string())
            .flag("secure-port", self.port.to_string())
            .flag("cert-dir", self.layout.dir())
            .flag("service-cluster-ip-range", "10.0.0.0/24")
            .flag("profiling", "false")
            // Tests start many, and a start makes much garbage: collecting less often spares processor time.
            .env(&[("GOGC".to_owned(), "400".to_owned())])
    }

    fn authenticated(&self, server: Server) -> Server {
        server
            .flag("tls-cert-file", self.layout.serving_certificate())
            .flag("tls-private-key-file", self.layout.serving_key())
            .flag("client-ca-file", self.layout.ca_certificate())
            .flag("token-auth-file", self.layout.tokens())
            .flag("service-account-issuer", Self::url(self.address(), self.port))
            .flag("service-account-key-file", self.layout.service_account_public_key())
            .flag("service-account-signing-key-file", self.layout.service_account_key())
    }

    fn admitted(&self, server: Server) -> Server {
        if self.options.machines.is_none() {
            return server
                .flag("authorization-mode", "RBAC")
                // Loopback addresses are refused as endpoints of the Service `kubernetes`; nobody needs that Service here.
                .flag("endpoint-reconciler-type", "none")
                // It refuses pods until a controller, which does not run here, has created the default accounts.
                .flag("disable-admission-plugins", "ServiceAccount");
        }
        server
            .flag("authorization-mode", "Node,RBAC")
            .flag("enable-admission-plugins", "NodeRestriction")
            .flag("allow-privileged", "true")
            // No kube-proxy runs where it runs: it finds the endpoints of a webhook's Service itself.
            .flag("enable-aggregator-routing", "true")
            .flag("kubelet-preferred-address-types", "InternalIP")
            .flag("kubelet-client-certificate", self.layout.kubelet_client_certificate())
            .flag("kubelet-client-key", self.layout.kubelet_client_key())
    }

    fn address(&self) -> Ipv4Addr {
        self.options.machines.unwrap_or(Ipv4Addr::LOCALHOST)
    }

    fn audited(&self, server: Server) -> Server {
        if self.options.audit_users.is_empty() {
            return server;
        }
        server
            .flag("audit-policy-file", self.layout.audit_policy())
            .flag("audit-log-path", self.layout.audit_log())
            // Never rotated, since the whole file is read.
            .flag("audit-log-maxsize", "0")
    }
}
