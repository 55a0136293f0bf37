//! HTTP clients, which keep connections open: what they send with each request, and which addresses they connect to.

mod roots;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::redirect;

use crate::address::{Allowed, GuardedResolver};
use crate::error::{Error, ErrorKind, Result, with_causes};
use crate::options::RemoteOptions;
use crate::runtime::PerProcess;
use roots::SystemRoots;

/// HTTP clients: one per rule for addresses, each made when it is needed. They keep connections open.
pub(crate) struct Connections {
    clients: [OnceLock<reqwest::Client>; 3],
    /// Shared by all clients.
    roots: Arc<SystemRoots>,
    /// See [`RemoteOptions::connect`].
    timeout: Duration,
}

impl Connections {
    fn new(timeout: Duration) -> Self {
        Self {
            clients: Default::default(),
            roots: Arc::default(),
            timeout,
        }
    }

    /// The connections of this process for this time: the default is shared, so that further URLs find connections open.
    pub(crate) fn with_timeout(timeout: Duration) -> Arc<Self> {
        static SHARED: PerProcess<Arc<Connections>> = PerProcess::new();
        let shared = SHARED.get(|| Arc::new(Self::new(RemoteOptions::default().connect)));
        // the time is a setting of a client, so that other times need clients of their own
        if timeout == shared.timeout {
            Arc::clone(shared)
        } else {
            Arc::new(Self::new(timeout))
        }
    }

    /// The client that connects to these addresses.
    pub(crate) fn to(&self, allowed: Allowed) -> Result<&reqwest::Client> {
        let cell = &self.clients[allowed as usize];
        if let Some(client) = cell.get() {
            return Ok(client);
        }
        let client = self.build(allowed)?;
        // another thread may have been faster: its client stays, and this one is dropped unused
        Ok(cell.get_or_init(|| client))
    }

    fn build(&self, allowed: Allowed) -> Result<reqwest::Client> {
        let failed = |e: &dyn std::error::Error| Error::new(ErrorKind::Network, with_causes(e));
        let mut tls = rustls::ClientConfig::builder_with_provider(self.roots.provider())
            .with_safe_default_protocol_versions()
            .map_err(|e| failed(&e))?
            // named so because of other verifiers than this one
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&self.roots) as _)
            .with_no_client_auth();
        // many ranges share one connection by HTTP/2
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let headers = HeaderMap::from_iter([(
            header::ACCEPT_ENCODING,
            HeaderValue::from_static("identity"),
        )]);
        let builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .default_headers(headers)
            .user_agent(concat!("anamnesis/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.timeout)
            .tcp_nodelay(true);
        let builder = match allowed {
            Allowed::Any => builder,
            guarded => builder.dns_resolver(Arc::new(GuardedResolver(guarded))),
        };
        builder.build().map_err(|e| failed(&e))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;
    use crate::runtime::wait;

    /// Answers one request of each of two connections, in plain HTTP, and returns the port.
    fn plain_server() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for connection in listener.incoming().take(2) {
                let mut connection = connection.unwrap();
                assert!(connection.read(&mut [0; 4096]).unwrap() > 0);
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                connection.write_all(answer).unwrap();
            }
        });
        port
    }

    #[test]
    fn roots_are_read_by_handshakes_alone() {
        let connections = Connections::new(Duration::from_secs(10));
        let client = connections.to(Allowed::Any).unwrap().clone();
        let port = plain_server();
        let get = |scheme: &str| {
            let request = client.get(format!("{scheme}://127.0.0.1:{port}/"));
            wait(async move {
                let sent = request.send().await;
                Ok(sent.map(|response| response.status()))
            })
            .unwrap()
        };
        assert_eq!(get("http").unwrap(), 200);
        assert!(!connections.roots.is_read());
        // no certificate arrives
        assert!(get("https").is_err());
        assert!(!connections.roots.is_read());
        let certificate = vec![0].into();
        let name = "localhost".try_into().unwrap();
        let now = rustls::pki_types::UnixTime::now();
        let roots: &dyn rustls::client::danger::ServerCertVerifier = &*connections.roots;
        let verified = roots.verify_server_cert(&certificate, &[], &name, &[], now);
        assert!(verified.is_err() && connections.roots.is_read());
    }
}
