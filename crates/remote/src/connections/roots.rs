//! The certificates that the operating system trusts, read at the first handshake of TLS: to read them takes milliseconds (experiment
//! 54), for which plain HTTP has no use.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use rustls_platform_verifier::Verifier;

/// Verifies as [`Verifier`] does, which is made when it is needed.
#[derive(Debug)]
pub(super) struct SystemRoots {
    provider: Arc<CryptoProvider>,
    /// Set once, by the first of the handshakes that run side by side.
    verifier: OnceLock<Result<Verifier, Error>>,
}

impl Default for SystemRoots {
    fn default() -> Self {
        Self {
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            verifier: OnceLock::new(),
        }
    }
}

impl SystemRoots {
    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        Arc::clone(&self.provider)
    }

    fn verifier(&self) -> Result<&Verifier, Error> {
        let make = || Verifier::new(Arc::clone(&self.provider));
        // a failure is kept as well: certificates do not appear during a run
        self.verifier
            .get_or_init(make)
            .as_ref()
            .map_err(Error::clone)
    }

    #[cfg(test)]
    pub(super) fn is_read(&self) -> bool {
        self.verifier.get().is_some()
    }
}

impl ServerCertVerifier for SystemRoots {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verifier = self.verifier()?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier()?.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier()?.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        // the list of `Verifier` on every system; a client's first message states it
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
