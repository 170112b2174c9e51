//! `switchyard attach nbd` with TLS, used by unmodified clients.

use crate::common::attached::{Attached, have, succeeds};
use crate::common::{Folder, Serving, code, pattern, program, run, stderr};
use std::path::{Path, PathBuf};
use testing::Authority;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Suffix of an attachment's URI with the certificates of a client.
fn uri(attached: &Attached, certificates: &Path) -> String {
    let begins = if attached.uri.contains('?') { '&' } else { '?' };
    format!(
        "{}{begins}tls-certificates={}",
        attached.uri,
        text(certificates)
    )
}

/// Options of the image on this port for QEMU's programs, with the certificates of a client.
fn image(port: &str, certificates: &Path) -> [String; 3] {
    let credentials = format!(
        "tls-creds-x509,id=tls,endpoint=client,verify-peer=yes,dir={}",
        text(certificates)
    );
    let image = format!("driver=nbd,host=localhost,port={port},tls-creds=tls");
    ["--object".to_owned(), credentials, image]
}

struct Bed {
    folder: Folder,
    server: PathBuf,
    client: PathBuf,
}

impl Bed {
    fn new() -> Self {
        let folder = Folder::new();
        let authority = Authority::new(Path::new(&folder.path("certificates")));
        let server = authority.issue("server", "server");
        let client = authority.issue("client", "client");
        Self {
            folder,
            server,
            client,
        }
    }
}

#[test]
fn unmodified_clients_copy_through_tls() {
    if !have(&["nbdcopy", "nbdinfo", "qemu-img", "openssl"]) {
        return;
    }
    let bed = Bed::new();
    let input = bed.folder.write("in", pattern(1, 16 << 20));
    let output = bed.folder.path("out");
    let serving = Serving::small();
    let socket = bed.folder.path("nbd.sock");
    let certificates = ["--tls-certificates", text(&bed.server), "--tls-verify-peer"];
    for listen in [["--listen", "127.0.0.1:0"], ["--socket", &socket]] {
        let source = ["nbd", "--target", serving.address()];
        let attached = Attached::start(&[&source[..], &listen, &certificates].concat());
        assert!(attached.uri.starts_with("nbds"), "{}", attached.uri);
        let uri = uri(&attached, &bed.client);
        let info = succeeds("nbdinfo", &["--json", &uri]);
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        assert_eq!(info["TLS"], true, "{info}");
        assert_eq!(info["exports"][0]["export-size"], 16 << 20, "{info}");
        succeeds("nbdcopy", &["--flush", &input, &uri]);
        succeeds("nbdcopy", &[&uri, &output]);
        assert!(std::fs::read(&output).unwrap() == pattern(1, 16 << 20));
        if let Some((_, port)) = attached
            .uri
            .rsplit_once(':')
            .filter(|_| listen[0] == "--listen")
        {
            let [object, credentials, image] = image(port, &bed.client);
            let given = ["compare", "--image-opts", &object, &credentials];
            let file = format!("driver=raw,file.driver=file,file.filename={input}");
            let images = [format!("driver=raw,{}", nested(&image)), file];
            succeeds(
                "qemu-img",
                &[&given[..], &[&images[0], &images[1]]].concat(),
            );
        }
        assert_eq!(attached.detach(), Some(0));
    }
    let read = run(&["read", serving.address()]);
    assert!(read.stdout == pattern(1, 16 << 20), "the target has it");
}

/// The options of an image, in the form for an image that contains it.
fn nested(image: &str) -> String {
    let options = image.split(',').map(|option| format!("file.{option}"));
    options.collect::<Vec<_>>().join(",")
}

#[test]
fn tls_without_certificates_is_refused() {
    let folder = Folder::new();
    let socket = folder.path("nbd.sock");
    for (args, expected) in [
        (&["--tls", "on"][..], "--tls-certificates"),
        (&["--tls-verify-peer"], "--tls-certificates"),
        (
            &["--tls-certificates", &folder.path("none")],
            "server-cert.pem: I/O error: No such file or directory (os error 2); the directory needs the PEM files",
        ),
    ] {
        let mut attach = program();
        attach.args(["attach", "nbd", "--ram", "1M", "--socket", &socket]);
        let output = attach.args(args).output().unwrap();
        code(&output, 2);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}
