//! Checks of what a configuration refers to, for `config check` and `doctor`: a daemon refuses to start without it.

use std::fs;
use std::path::Path;

use ipfrs_core::{Error, Result};
use ipfrs_middleware::auth::{check_api_keys, check_key_set};
use ipfrs_node::check_denylists;

use super::Config;
use crate::tls;

impl Config {
    /// Checks the denylists, the certificates, the keys of callers and of tokens, and the directory of references, and
    /// that no two listeners have the same address. Blocks on the disk.
    ///
    /// # Errors
    /// The first problem, with its key.
    pub fn check_references(&self, repo: &Path) -> Result<()> {
        check_denylists(repo, &self.gateway.denylists)?;
        tls::check_files(&self.tls)?;
        if self.auth.enabled {
            check_api_keys(repo)?;
        }
        let keys = &self.auth.jwt_keys;
        if !keys.is_empty() && !["http://", "https://"].iter().any(|scheme| keys.starts_with(scheme)) {
            check_key_set(Path::new(keys))?;
        }
        if let Some(root) = self.store.filestore_root.as_ref().map(|root| repo.join(root)) {
            let cannot = |e| Error::io(format_args!("store.filestore_root: cannot open {}", root.display()), e);
            if !fs::metadata(&root).map_err(cannot)?.is_dir() {
                return Err(Error::invalid(format!("store.filestore_root: {} is not a directory", root.display())));
            }
        }
        self.check_listeners()
    }

    /// Checks that no two listeners have the same address.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind), with the key.
    pub(crate) fn check_listeners(&self) -> Result<()> {
        let redirecting = if self.public.enabled { &self.public.host } else { &self.server.host };
        let listeners = [
            ("server", "port", true, &self.server.host, Some(self.server.port)),
            ("grpc", "port", self.grpc.enabled, &self.grpc.host, self.grpc.port),
            ("api", "port", self.api.enabled, &self.api.host, self.api.port),
            ("public", "port", self.public.enabled, &self.public.host, Some(self.public.port)),
            ("tls", "redirect_port", self.tls.enabled, redirecting, self.tls.redirect_port),
        ];
        let used =
            listeners.into_iter().filter(|(.., is_used, _, port)| *is_used && port.is_some_and(|port| port != 0));
        let used: Vec<_> = used.collect();
        for (index, (section, key, _, host, port)) in used.iter().enumerate() {
            let same = used[..index].iter().find(|(.., other, number)| other == host && number == port);
            if let Some((other, ..)) = same {
                let port = port.unwrap_or_default();
                return Err(Error::invalid(format!(
                    "{section}.{key} = {port}: [{other}] listens there too: choose another port"
                )));
            }
        }
        Ok(())
    }
}
