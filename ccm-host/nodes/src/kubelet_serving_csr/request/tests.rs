use proptest::prelude::*;

use super::{
    super::tests::forge::{
        COMMON_NAME, DNS, Forge, IP, ORGANIZATION, attribute_value, extension, pem, relative_name,
    },
    *,
};

const GO: &[u8] = include_bytes!("../testdata/go-p256.pem");

fn good() -> Forge {
    Forge::of("node-a", &["node-a", "10.64.0.1"])
}

fn with(change: impl FnOnce(&mut Forge)) -> Vec<u8> {
    let mut forge = good();
    change(&mut forge);
    forge.pem()
}

/// What kubelets write, and what other tools write with any key that is strong enough.
#[test]
fn a_request_is_read_with_every_name() {
    let wanted = |dns_names: &[&str], addresses: &[&str]| WantedCertificate {
        common_name: "system:node:node-a".to_owned(),
        organization: "system:nodes".to_owned(),
        dns_names: dns_names.iter().map(|name| (*name).to_owned()).collect(),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
    };
    let both = wanted(&["node-a"], &["10.64.0.1"]);
    assert_eq!(read(GO), Ok(wanted(&["node-a", "node-a.mock.internal"], &["10.64.0.1", "fd00::1"])));
    for other in [
        &include_bytes!("../testdata/openssl-rsa2048.pem")[..],
        include_bytes!("../testdata/openssl-p384.pem"),
        include_bytes!("../testdata/openssl-ed25519.pem"),
        &good().pem(),
        good().pem().trim_ascii_end(),
    ] {
        assert_eq!(read(other), Ok(both.clone()), "{}", String::from_utf8_lossy(other));
    }
    let crlf = String::from_utf8(GO.to_vec()).unwrap().replace('\n', "\r\n");
    assert_eq!(read(crlf.as_bytes()), read(GO));
}

#[test]
fn more_than_one_bare_block_is_refused() {
    let good = String::from_utf8(good().pem()).unwrap();
    let rows = [
        String::new(),
        "no PEM".to_owned(),
        format!("{good}{good}"),
        format!("comment\n{good}"),
        format!("\n{good}"),
        format!("{good}comment"),
        good.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
        good.replace("CERTIFICATE REQUEST", "CERTIFICATE"),
        good.replacen("REQUEST-----\n", "REQUEST-----\nProc-Type: 4,ENCRYPTED\n\n", 1),
        good.replacen("REQUEST-----\n", "REQUEST-----", 1),
        good.replace("-----END CERTIFICATE REQUEST-----\n", ""),
        good.replacen("MII", "M*I", 1),
        good.replacen("MII", "", 1),
    ];
    for text in rows {
        let flaw = read(text.as_bytes()).unwrap_err();
        assert!(matches!(flaw, Flaw::Pem | Flaw::Encoding), "{flaw:?}: {text}");
    }
    assert_eq!(read(&[0xff, 0xfe]), Err(Flaw::Pem));
    let long = [good.as_bytes(), &vec![b'\n'; LONGEST_PEM]].concat();
    assert_eq!(read(&long), Err(Flaw::TooLong));
}

#[test]
fn each_flaw_is_found() {
    let basic_constraints = extension(&[0x55, 0x1d, 19], &der(0x30, &[&[1, 1, 0xff]]));
    let key_usage = extension(&[0x55, 0x1d, 15], &[3, 2, 2, 4]);
    let unknown = extension(&[0x2a, 3, 4], &[5, 0]);
    let second_names = extension(&[0x55, 0x1d, 17], &der(0x30, &[&der(DNS, &[b"node-b"])]));
    let asked_twice = {
        let asked = der(0x31, &[&der(0x30, &[&second_names])]);
        der(0x30, &[&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 9, 14], &asked])
    };
    let password = {
        let value = der(0x31, &[&der(0x0c, &[b"secret"])]);
        der(0x30, &[&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 9, 7], &value])
    };
    let is = |id: &str| Flaw::Extension(id.to_owned());
    let rows: Vec<(&str, Vec<u8>, Flaw)> = vec![
        ("a CA", with(|forge| forge.extensions = vec![basic_constraints]), is("2.5.29.19")),
        ("a key usage", with(|forge| forge.extensions = vec![key_usage]), is("2.5.29.15")),
        ("an unknown extension", with(|forge| forge.extensions = vec![unknown]), is("1.2.3.4")),
        ("names twice", with(|forge| forge.extensions = vec![second_names.clone()]), Flaw::Encoding),
        ("extensions twice", with(|forge| forge.attributes = vec![asked_twice]), Flaw::Encoding),
        ("a password", with(|forge| forge.attributes = vec![password]), Flaw::Attribute),
        ("no names", Forge::of("node-a", &[]).pem(), Flaw::NoNames),
        (
            "an empty list of names",
            with(|forge| {
                forge.names = Vec::new();
                forge.extensions = vec![extension(&[0x55, 0x1d, 17], &[0x30, 0])];
            }),
            Flaw::NoNames,
        ),
        (
            "an email",
            with(|forge| forge.names.push(der(0x81, &[b"a@b"]))),
            Flaw::NameType("an email address"),
        ),
        ("a URI", with(|forge| forge.names.push(der(0x86, &[b"spiffe://a"]))), Flaw::NameType("a URI")),
        (
            "a directory name",
            with(|forge| forge.names.push(der(0xa4, &[&[0x30, 0]]))),
            Flaw::NameType("a name of another type"),
        ),
        ("an address of 5 bytes", with(|forge| forge.names.push(der(IP, &[&[1; 5]]))), Flaw::Encoding),
        ("an address with a mask", with(|forge| forge.names.push(der(IP, &[&[1; 8]]))), Flaw::Encoding),
        ("no subject", with(|forge| forge.subject.clear()), Flaw::Subject),
        ("no organization", with(|forge| drop(forge.subject.remove(0))), Flaw::Subject),
        (
            "two organizations",
            with(|forge| forge.subject.push(relative_name(&ORGANIZATION, "system:masters"))),
            Flaw::Subject,
        ),
        (
            "two common names",
            with(|forge| forge.subject.push(relative_name(&COMMON_NAME, "system:node:node-b"))),
            Flaw::Subject,
        ),
        ("a unit", with(|forge| forge.subject.push(relative_name(&[0x55, 4, 11], "unit"))), Flaw::Subject),
        (
            "two in one",
            with(|forge| {
                let both = [
                    attribute_value(&COMMON_NAME, 0x13, "system:node:node-a"),
                    attribute_value(&ORGANIZATION, 0x13, "system:nodes"),
                ];
                forge.subject = vec![der(0x31, &[&both.concat()])];
            }),
            Flaw::Subject,
        ),
        (
            "a common name in wide characters",
            with(|forge| forge.subject[1] = der(0x31, &[&attribute_value(&COMMON_NAME, 0x1e, "\0a\0b")])),
            Flaw::Subject,
        ),
        ("another version", with(|forge| forge.version = 2), Flaw::Encoding),
        ("more within what is signed", with(|forge| forge.appendix = vec![5, 0]), Flaw::Encoding),
        ("more after it", pem(&[good().der(), vec![0]].concat()), Flaw::Encoding),
        ("no request", pem(&[0x30, 0]), Flaw::Encoding),
        ("RSA of 1024 bits", include_bytes!("../testdata/weak-rsa1024.pem").to_vec(), Flaw::Signature),
        ("SHA-1", include_bytes!("../testdata/weak-sha1.pem").to_vec(), Flaw::Key),
        ("P-521", include_bytes!("../testdata/odd-p521.pem").to_vec(), Flaw::Key),
        ("secp256k1", include_bytes!("../testdata/odd-secp256k1.pem").to_vec(), Flaw::Key),
        ("the key of another", good().pem_of_a_thief(), Flaw::Signature),
    ];
    for (name, pem, flaw) in rows {
        assert_eq!(read(&pem), Err(flaw), "{name}");
    }
}

/// A reader that is content with the first value of a set, or with bytes after a value, sees another request than a
/// signer that reads them all.
#[test]
fn nothing_hides_behind_what_was_read() {
    let names = der(0x30, &[&good().names.concat()]);
    let san = |value: &[u8]| extension(&[0x55, 0x1d, 17], value);
    let attribute =
        |set: &[u8]| der(0x30, &[&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 9, 14], &der(0x31, &[set])]);
    let list = |extension: &[u8]| der(0x30, &[extension]);
    let hidden = list(&san(&der(0x30, &[&der(DNS, &[b"node-b"])])));
    let rows = [
        ("a second value", attribute(&[list(&san(&names)), hidden].concat())),
        ("bytes after the names", attribute(&list(&san(&[names.clone(), vec![5, 0]].concat())))),
        ("a long form of a length", attribute(&list(&san(&[&[0x30, 0x81, names[1]], &names[2..]].concat())))),
        ("false, written out", {
            let spelled = der(0x30, &[&der(6, &[&[0x55, 0x1d, 17]]), &[1, 1, 0], &der(4, &[&names])]);
            attribute(&list(&spelled))
        }),
    ];
    let plain = attribute(&list(&san(&names)));
    let read_with = |attribute: Vec<u8>| {
        read(&with(|forge| (forge.names, forge.attributes) = (Vec::new(), vec![attribute])))
    };
    assert!(read_with(plain).is_ok());
    for (name, attribute) in rows {
        let flaw = read_with(attribute).unwrap_err();
        assert_eq!(flaw, Flaw::Encoding, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// No byte may differ from what was signed.
    #[test]
    fn a_request_with_a_changed_byte_is_refused(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let good = good().der();
        let mut changed = good.clone();
        let at = at.index(changed.len());
        changed[at] = to;
        prop_assert_eq!(read(&pem(&changed)).is_ok(), changed == good);
    }

    #[test]
    fn a_cut_or_grown_request_is_refused(at in any::<prop::sample::Index>(), more in prop::collection::vec(any::<u8>(), 1..20)) {
        let good = good().der();
        let at = at.index(good.len());
        prop_assert!(read(&pem(&good[..at])).is_err());
        let grown = [&good[..at], &more, &good[at..]].concat();
        prop_assert!(read(&pem(&grown)).is_err());
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(read(&bytes).is_err());
        prop_assert!(read(&pem(&bytes)).is_err());
    }

    /// Names of every type and content, correctly encoded and signed.
    #[test]
    fn any_name_is_read_as_it_is_or_refused(tag in 0x80_u8..0x8a, content in prop::collection::vec(any::<u8>(), 0..300)) {
        let pem = with(|forge| forge.names = vec![der(tag, &[&content])]);
        if let Ok(wanted) = read(&pem) {
            let names: Vec<_> = wanted.dns_names.iter().map(|name| name.as_bytes().to_vec()).collect();
            let addresses: Vec<_> = wanted.addresses.iter().map(|one| match one {
                IpAddr::V4(v4) => v4.octets().to_vec(),
                IpAddr::V6(v6) => v6.octets().to_vec(),
            }).collect();
            prop_assert_eq!([names, addresses].concat(), [content]);
        }
    }
}
