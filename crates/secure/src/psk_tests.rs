//! Vectors: those of libnvme's `test/psk.c` and of Linux' KUnit test of NVMe authentication.

use super::*;

const HOST: &str = "nqn.psk-test-host";
const SUBSYSTEM: &str = "nqn.psk-test-subsys";
const KEY00: &str = "NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
const KEY01: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
const KEY02: &str = "NVMeTLSkey-1:02:\
    VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:";

fn key(text: &str) -> TlsKey {
    TlsKey::parse(text).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    crate::hash::hex(text)
}

#[test]
fn keys_are_read_and_written_in_the_interchange_format() {
    for text in [KEY00, KEY01, KEY02] {
        assert_eq!(*key(text).to_text(), text);
    }
    assert_eq!(key(KEY00).hash(), None);
    assert_eq!(key(KEY00).suite_hash(), Hash::Sha256);
    assert_eq!(key(KEY02).suite_hash(), Hash::Sha384);
    assert_eq!(
        TlsKey::new(None, &[7; 48]).unwrap().suite_hash(),
        Hash::Sha384
    );
    assert_ne!(key(KEY00), key(KEY01));
}

#[test]
fn each_error_of_a_key_is_named() {
    let changed = |from: &str, to: &str| TlsKey::parse(&KEY01.replacen(from, to, 1)).unwrap_err();
    assert_eq!(changed("NVMe", "nvme"), KeyError::Prefix("NVMeTLSkey"));
    assert_eq!(changed("-1:", "-2:"), KeyError::Version("NVMeTLSkey"));
    assert_eq!(changed("LrZ:", "LrZ"), KeyError::Form("NVMeTLSkey"));
    assert!(matches!(changed(":01:", ":03:"), KeyError::Hash(..)));
    assert!(matches!(changed(":01:", ":1:"), KeyError::Hash(..)));
    assert_eq!(changed("VRLb", "VR b"), KeyError::Base64);
    assert_eq!(changed("VRLb", "VRLc"), KeyError::Checksum);
    let of_hash = KeyError::LengthOfHash {
        bytes: 32,
        hash: Hash::Sha384,
    };
    assert_eq!(changed(":01:", ":02:"), of_hash);
    let short = TlsKey::parse("NVMeTLSkey-1:00:AAAA:").unwrap_err();
    assert!(short.to_string().contains("must have 32 or 48"), "{short}");
    TlsKey::new(None, &[0; 64]).unwrap_err();
    TlsKey::new(Some(Hash::Sha512), &[0; 32]).unwrap_err();
}

#[test]
fn nothing_shows_the_key() {
    let shown = format!("{:?} {:?}", key(KEY01), offers(&key(KEY01), HOST, "nqn.s"));
    for part in ["VRLb", "5512", "85, 18"] {
        assert!(!shown.contains(part), "{shown}");
    }
}

#[test]
fn identities_are_those_of_libnvme_with_both_derivations() {
    let identities = |text: &str| {
        let psks = offers(&key(text), HOST, SUBSYSTEM);
        psks.into_iter().map(|psk| psk.identity).collect::<Vec<_>>()
    };
    let prefix = |head: &str| format!("{head} {HOST} {SUBSYSTEM}");
    let (one, zero) = (prefix("NVMe1R01"), prefix("NVMe0R01"));
    assert_eq!(
        identities(KEY01),
        [
            format!("{one} iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU="),
            zero.clone(),
            format!("{one} 66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM="),
            zero,
        ]
    );
    let (one, zero) = (prefix("NVMe1R02"), prefix("NVMe0R02"));
    assert_eq!(
        identities(KEY02),
        [
            format!("{one} QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a"),
            zero.clone(),
            format!("{one} RsKmYJ3nAn1ApjjMloJFbAkLPivONDAX/xW327YBUsn2eGShXSjCZvBaOxscLqmz"),
            zero,
        ]
    );
}

#[test]
fn secrets_are_those_of_linux() {
    let cases = [
        (
            "1733c59fa7f48fcf37f5f26fc4ff0268ad4f78e030f4f3b0bfd1d47e7bb1447a",
            "NVMe1R01 hostnqn subsysnqn OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=",
            "3c17da628474a04d2247c4cab47968c915388193f7c071bd9489cc3666cd7cc8",
        ),
        (
            "f14b2dd3234c459694d3bc63f8968bd6b37c2c6de849e22e\
             11874900 1ce4bbe8640b9e3a748cb11ce4b1d71d359cce39",
            "NVMe1R02 hostnqn subsysnqn \
             cffMWk8TSS7HOQebjgYEIkrPrjWPV4JE5cdPB8WhEvY4JBW5YynKyv66XscN4A9n",
            "277475323353 7b3fa50eb7d16a8e43457d85f4906c005b22\
             36616c5d80939d0898fff15bb8b77119d2be0aac423e7590",
        ),
    ];
    for (input, identity, secret) in cases {
        let psks = offers(
            &TlsKey::new(None, &hex(input)).unwrap(),
            "hostnqn",
            "subsysnqn",
        );
        assert_eq!(psks[0].identity, identity);
        assert_eq!(*psks[0].secret, hex(secret));
        // The key is used as it is: both derivations have one identity and two secrets.
        assert_eq!(psks[2].identity, identity);
        assert_ne!(psks[2].secret, psks[0].secret);
    }
}

/// Computed with Python's `hmac` from the derivations' definitions.
#[test]
fn secrets_of_version_0_and_of_old_libnvme() {
    let psks = offers(&key(KEY01), HOST, SUBSYSTEM);
    let secrets = psks.iter().map(|psk| psk.secret.to_vec());
    assert_eq!(
        secrets.collect::<Vec<_>>(),
        [
            hex("8fc3c0badfd4c0c66fa3ca33aadd0314f85536cc9bc47338b60f3e6e563786ca"),
            hex("05c6503551ad136e6ee32e6eeb3f6d500b69701d84ec71e328f65c7f51566f68"),
            hex("b9f5ab2a41ba6e72a23a12066302a2f775fa6c0942c8e0b18ca8ac07edf305e2"),
            hex("09fb1983ac6d6d0353e7cae4f23daddd651c367fa347c59d9cf6936f5a83eafb"),
        ]
    );
    let forms = psks.iter().map(|psk| (psk.derivation, psk.version));
    assert!(forms.eq([
        (Derivation::Specified, 1),
        (Derivation::Specified, 0),
        (Derivation::Libnvme, 1),
        (Derivation::Libnvme, 0),
    ]));
}

#[test]
fn names_too_long_for_version_0_leave_the_other_forms() {
    let (host, subsystem) = ("h".repeat(223), "s".repeat(223));
    let psks = offers(&key(KEY01), &host, &subsystem);
    let forms = psks.iter().map(|psk| (psk.derivation, psk.version));
    assert!(forms.eq([
        (Derivation::Specified, 1),
        (Derivation::Libnvme, 1),
        (Derivation::Libnvme, 0),
    ]));
}

#[test]
fn identities_are_parsed() {
    let psks = offers(&key(KEY02), HOST, SUBSYSTEM);
    for psk in &psks {
        let identity = Identity::parse(psk.identity.as_bytes()).unwrap();
        assert_eq!(identity.version, psk.version);
        assert_eq!(identity.hash, Hash::Sha384);
        assert_eq!((identity.hostnqn, identity.subnqn), (HOST, SUBSYSTEM));
        assert_eq!(identity.digest.is_some(), psk.version == 1);
        assert!(!identity.generated);
    }
    assert!(Identity::parse(b"NVMe1G01 h s d").unwrap().generated);
    for (text, error) in [
        ("", IdentityError::Form),
        ("Client_identity", IdentityError::Form),
        ("NVMe0R01 h", IdentityError::Form),
        ("NVMe0R01 h s d", IdentityError::Form),
        ("NVMe1R01 h s", IdentityError::Form),
        ("NVMe1R01 h s d e", IdentityError::Form),
        ("NVMe0R01  h s", IdentityError::Form),
        ("NVMe0X01 h s", IdentityError::Form),
        ("NVMe2R01 h s d", IdentityError::Version),
        ("NVMe0R00 h s", IdentityError::Hash),
        ("NVMe0R03 h s", IdentityError::Hash),
    ] {
        assert_eq!(Identity::parse(text.as_bytes()), Err(error), "{text}");
    }
    assert_eq!(
        Identity::parse(b"NVMe0R01 \xff s"),
        Err(IdentityError::Form)
    );
}
