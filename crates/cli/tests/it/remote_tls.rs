//! HTTPS: a redirect from HTTP leads to it, and the certificates that the system trusts decide.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::process::{Run, command, finish, path_str, stdout_of, workspace};

const MODEL: &str = "fixtures/safetensors/many.safetensors";

/// A certificate for `localhost` that no system trusts, and its key. They were made for this test.
fn file(name: &str) -> PathBuf {
    workspace().join("crates/cli/tests/it/tls").join(name)
}

/// The path of a request, which is read to its end.
fn requested(stream: &mut impl Read) -> Option<String> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let rest = lines.map_while(Result::ok);
    // the bytes of a request without a body end at the empty line
    rest.take_while(|line| !line.is_empty()).for_each(drop);
    first.split(' ').nth(1).map(str::to_owned)
}

/// Answers the first request of each connection on a thread of its own, and returns the port.
fn serve(answer: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
    port
}

/// A server that redirects to another one, which has the model and the certificate. Returns the URL of the model.
fn redirecting_server() -> String {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate = CertificateDer::from_pem_file(file("certificate.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(file("key.pem")).unwrap();
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let tls = Arc::new(tls);
    let model = std::fs::read(workspace().join(MODEL)).unwrap();
    let secure = serve(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&tls)).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let head = match requested(&mut stream) {
            None => return, // the client has refused the certificate
            Some(path) if path != "/model.safetensors" => {
                "404 Not Found\r\nContent-Length: 0".to_owned()
            }
            Some(_) => format!(
                "206 Partial Content\r\nETag: \"1\"\r\nContent-Range: bytes 0-{}/{len}\r\nContent-Length: {len}",
                model.len() - 1,
                len = model.len()
            ),
        };
        let body = if head.starts_with("206") {
            &model[..]
        } else {
            &[]
        };
        let head = format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n");
        // the client may have what it needs
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(body);
        stream.conn.send_close_notify();
        let _ = stream.flush();
    });
    let plain = serve(move |mut stream| {
        let path = requested(&mut stream).unwrap_or_default();
        let answer = format!(
            "HTTP/1.1 302 Found\r\nLocation: https://localhost:{secure}{path}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let _ = stream.write_all(answer.as_bytes());
    });
    format!("http://localhost:{plain}/model.safetensors")
}

#[test]
fn a_redirect_to_https_is_followed_if_the_system_trusts_the_certificate() {
    let url = redirecting_server();
    let inspect = |roots: Option<PathBuf>| -> Run {
        let mut command = command(&["inspect", "--filter", "*", &url]);
        command.env_remove("SSL_CERT_DIR");
        match roots {
            Some(path) => command.env("SSL_CERT_FILE", path_str(&path)),
            None => command.env_remove("SSL_CERT_FILE"),
        };
        finish(command)
    };
    let found = inspect(Some(file("certificate.pem")));
    assert_eq!((found.code, &*found.stderr), (0, ""));
    let local = stdout_of(&["inspect", "--filter", "*", MODEL]);
    let tensors = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(tensors(&found.stdout), tensors(&local));
    let refused = inspect(None);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("certificate"), "{}", refused.stderr);
}
