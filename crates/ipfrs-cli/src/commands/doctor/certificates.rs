//! Checks of the certificates of `[tls]`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ipfrs_core::timestamp;
use ipfrs_interface::{CertificateFiles, Config, certificate_expiries};

use super::Finding;
use super::access;
use super::remedy::quoted_path;

const CHECK: &str = "certificate";
/// Time before its end at which an expiring certificate is a finding, in seconds.
const EXPIRES_SOON_SECONDS: i64 = 14 * 24 * 3_600;

/// Checks each certificate of the configuration, and that of the authority: whether it can be read and belongs to its
/// key, who can read the key, and when it expires.
pub(super) fn check(repo: &Path, config: &Config) -> Vec<Finding> {
    if !config.tls.enabled {
        return Vec::new();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let mut findings = Vec::new();
    for (files, expires) in certificate_expiries(&config.tls, repo) {
        findings.push(match expires {
            Ok(expires) => of_time(&files, expires, now),
            Err(error) => Finding::error(CHECK, error.message(), unusable(&files)),
        });
        findings.extend(of_key(&files));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "the daemon gets one from the authority when it starts"));
    }
    findings
}

fn of_time(files: &CertificateFiles, expires: i64, now: i64) -> Finding {
    let (shown, time) = (files.certificate.display(), timestamp::format(expires, 0).unwrap_or_default());
    let renew = match files.certificate.components().any(|part| part.as_os_str() == "letsencrypt") {
        true => "sudo certbot renew".to_owned(),
        false => format!("openssl x509 -noout -issuer -subject -dates -in {}", quoted_path(&files.certificate)),
    };
    match expires.saturating_sub(now) {
        left if left <= 0 => {
            Finding::error(CHECK, format!("{shown} expired at {time}: renew it with its issuer"), renew)
        }
        left if left < EXPIRES_SOON_SECONDS => {
            let days = left / (24 * 3_600);
            let message = format!("{shown} expires in {days} days, at {time}: renew it with its issuer");
            Finding::warning(CHECK, message, renew)
        }
        _ => Finding::ok(CHECK, format!("{shown} is valid until {time}")),
    }
}

/// Returns a command about files that cannot be used: it gives access, or shows what is wrong.
fn unusable(files: &CertificateFiles) -> String {
    for path in [&files.certificate, &files.key] {
        match fs::read(path) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return access::fix(path, path),
            Err(_) => return format!("ls -l {}", quoted_path(path)),
        }
    }
    let (certificate, key) = (quoted_path(&files.certificate), quoted_path(&files.key));
    format!("openssl x509 -noout -pubkey -in {certificate}; openssl pkey -pubout -in {key}")
}

/// Returns a finding if every user can read the private key. A group may have access to it.
fn of_key(files: &CertificateFiles) -> Option<Finding> {
    let mode = fs::metadata(&files.key).ok()?.permissions().mode();
    (mode & 0o007 != 0).then(|| {
        let message = format!("all users have access to the private key in {}", files.key.display());
        Finding::warning(CHECK, message, format!("chmod o-rwx {}", quoted_path(&files.key)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::Status;

    #[test]
    fn certificates_that_expire_within_two_weeks_are_findings() {
        let files = |path: &str| CertificateFiles { certificate: path.into(), key: "key.pem".into() };
        let (own, day) = (files("/etc/ipfrs/a b.pem"), 24 * 3_600);
        for (left, status, message) in [
            (15 * day, Status::Ok, "is valid until"),
            (13 * day + 1, Status::Warning, "in 13 days"),
            (1, Status::Warning, "in 0 days"),
            (0, Status::Error, "expired at"),
            (-400 * day, Status::Error, "expired at"),
        ] {
            let found = of_time(&own, 2_000_000_000 + left, 2_000_000_000);
            assert_eq!(found.status, status, "{found:?}");
            assert!(found.message.contains(message), "{found:?}");
            let fix = found.fix.unwrap_or_default();
            assert_eq!(fix.ends_with("-in '/etc/ipfrs/a b.pem'"), status != Status::Ok, "{fix}");
        }
        let found = of_time(&files("/etc/letsencrypt/live/a/fullchain.pem"), 0, 1);
        assert_eq!(found.fix.as_deref(), Some("sudo certbot renew"));
    }
}
