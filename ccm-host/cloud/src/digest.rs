//! The digest of a balancer's desired state, in three parts, so that an applied digest in a list also shows what
//! differs.
//!
//! In: the class, and digests over the Service and over its backends. Out: one text, opaque to providers, stored with
//! the balancer; and comparisons of two such texts by part. Acting on a difference is the business of
//! `ccm-services`.
//!
//! ```text
//! 8 digits of the class - 26 of the Service, its class included - 26 of the backends
//! ```
//!
//! 62 characters of `0-9a-f-` in all: they fit into a label value of any cloud.

use std::{collections::HashMap, mem::take};

use cloudprovider_proto::v1alpha1 as pb;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

/// Hexadecimal digits that distinguish the classes of one cluster.
const CLASS: usize = 8;
/// Hexadecimal digits of each other part: 104 bits.
const PART: usize = 26;

const SEPARATOR: char = '-';

/// Joins the parts. The last two are digests already, and are cut.
pub(super) fn desired(class: Option<&str>, service: &str, backends: &str) -> String {
    join(class, part_of(service), part_of(backends))
}

fn part_of(digest: &str) -> &str {
    digest.get(..PART).unwrap_or(digest)
}

fn is_ours(digest: &str) -> bool {
    let mut parts = digest.split(SEPARATOR);
    let is_class = |part: &str| part.len() == CLASS && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts.next().is_some_and(is_class) && parts.count() == 2
}

/// Like [`desired`], with parts of any length that hold no separator.
pub(super) fn join(class: Option<&str>, service: &str, backends: &str) -> String {
    format!("{}{SEPARATOR}{service}{SEPARATOR}{backends}", part_of_class(class))
}

/// Whether only the backends differ. False for a text that this module did not make.
pub fn differ_in_backends_only(a: &str, b: &str) -> bool {
    match (a.rsplit_once(SEPARATOR), b.rsplit_once(SEPARATOR)) {
        (Some((a, of_a)), Some((b, of_b))) => a == b && of_a != of_b,
        _ => false,
    }
}

/// Whether both cover the same backends. False for a text that this module did not make.
pub fn cover_the_same_backends(a: &str, b: &str) -> bool {
    match (a.rsplit_once(SEPARATOR), b.rsplit_once(SEPARATOR)) {
        (Some((_, a)), Some((_, b))) => a == b,
        _ => false,
    }
}

/// The digest `applied` with its backends replaced by those of `wanted`. `None` if the backends are already the same,
/// or if this module did not make `applied`.
pub fn with_backends_of(applied: &str, wanted: &str) -> Option<String> {
    let (rest, before) = applied.rsplit_once(SEPARATOR)?;
    let (_, backends) = wanted.rsplit_once(SEPARATOR)?;
    (is_ours(applied) && before != backends).then(|| format!("{rest}{SEPARATOR}{backends}"))
}

/// The class and the Service of a digest, without the backends.
pub fn service_part(digest: &str) -> Option<&str> {
    digest.rsplit_once(SEPARATOR).map(|(part, _)| part)
}

/// The digest of that Service with these backends.
pub fn joined(service_part: &str, backends: &str) -> String {
    format!("{service_part}{SEPARATOR}{}", part_of(backends))
}

/// Whether the digest of a balancer covers the set of backends with this digest.
pub fn covers_backends(digest: &str, backends: &str) -> bool {
    digest.rsplit_once(SEPARATOR).is_some_and(|(_, part)| part == part_of(backends))
}

/// Whether a balancer with this digest was certainly made for a Service of another class: a text that this module did
/// not make proves nothing.
pub fn is_for_another_class(digest: &str, class: Option<&str>) -> bool {
    let part = digest.split(SEPARATOR).next().unwrap_or_default();
    is_ours(digest) && part != part_of_class(class)
}

/// No class and an empty class differ.
fn part_of_class(class: Option<&str>) -> String {
    let text = class.map_or_else(String::new, |class| format!("={class}"));
    hex(&Sha256::digest(text)).chars().take(CLASS).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of a digest: 128 bits distinguish sets and keep the clouds' tags short.
const BYTES: usize = 16;

/// Digests messages. An encoding holds no field that has its default, and the others in the order of their numbers, so a
/// field that is new changes no digest before it is used. Maps have no order of their own: they are counted and sorted
/// here.
pub(super) struct Digester(Sha256);

impl Digester {
    pub(super) fn new(kind: &str) -> Self {
        let mut writer = Self(Sha256::new());
        writer.bytes(kind.as_bytes());
        writer
    }

    pub(super) fn finish(self) -> String {
        hex(&self.0.finalize()[..BYTES])
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.update(bytes);
    }

    fn count(&mut self, count: usize) {
        self.0.update((count as u64).to_be_bytes());
    }

    fn pairs(&mut self, pairs: &HashMap<String, String>) {
        let mut sorted: Vec<_> = pairs.iter().collect();
        sorted.sort_unstable();
        self.count(sorted.len());
        for (key, value) in sorted {
            self.bytes(key.as_bytes());
            self.bytes(value.as_bytes());
        }
    }

    /// The whole node, which stays as it is.
    pub(super) fn node(&mut self, node: &mut pb::NodeRef) {
        let maps = [take(&mut node.labels), take(&mut node.annotations)];
        self.bytes(&node.encode_to_vec());
        maps.iter().for_each(|pairs| self.pairs(pairs));
        [node.labels, node.annotations] = maps;
    }

    /// Everything wanted. The status is a balancer's answer, not a wish; finalizers and times change no balancer.
    pub(super) fn service(&mut self, mut service: pb::Service) {
        service.ingress.clear();
        service.finalizers.clear();
        service.creation_time = None;
        service.deletion_time = None;
        let maps = [take(&mut service.labels), take(&mut service.annotations)];
        self.bytes(&service.encode_to_vec());
        maps.iter().for_each(|pairs| self.pairs(pairs));
    }

    /// What load balancers are made of besides. None changes no digest.
    pub(super) fn settings(&mut self, settings: &str) {
        if !settings.is_empty() {
            self.bytes(settings.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(class: Option<&str>, service: char, backends: char) -> String {
        let part = |digit: char| digit.to_string().repeat(32);
        desired(class, &part(service), &part(backends))
    }

    #[test]
    fn it_fits_into_the_label_of_any_cloud() {
        let text = digest(Some("example.com/a"), 'a', 'b');
        assert!(text.len() <= 63, "{text}");
        assert!(text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'), "{text}");
    }

    #[test]
    fn two_digests_say_whether_only_the_backends_differ() {
        let rows = [
            (digest(None, 'a', 'b'), digest(None, 'a', 'c'), true),
            (digest(None, 'a', 'b'), digest(None, 'a', 'b'), false),
            (digest(None, 'a', 'b'), digest(None, 'c', 'b'), false),
            (digest(None, 'a', 'b'), digest(None, 'c', 'd'), false),
            (digest(None, 'a', 'b'), digest(Some("x"), 'a', 'c'), false),
            ("somebody else's".to_owned(), digest(None, 'a', 'b'), false),
            ("d1".to_owned(), "d2".to_owned(), false),
        ];
        for (a, b, want) in rows {
            assert_eq!(differ_in_backends_only(&a, &b), want, "{a} and {b}");
            assert_eq!(differ_in_backends_only(&b, &a), want, "{b} and {a}");
        }
    }

    #[test]
    fn backends_are_replaced_and_nothing_else() {
        let (applied, edited) = (digest(None, 'a', 'b'), digest(Some("x"), 'c', 'd'));
        assert_eq!(with_backends_of(&applied, &edited), Some(digest(None, 'a', 'd')));
        assert_eq!(with_backends_of(&applied, &digest(None, 'c', 'b')), None, "they have not changed");
        for text in ["", "d1", "a-b", "somebody-else's-text"] {
            assert_eq!(with_backends_of(text, &edited), None, "{text:?} was not made here");
        }
        let set = |digit: char| digit.to_string().repeat(32);
        assert!(covers_backends(&applied, &set('b')) && !covers_backends(&applied, &set('c')));
        assert!(!covers_backends("d1", &set('b')));
    }

    #[test]
    fn a_digest_says_for_which_class_it_was_made() {
        let classes = [None, Some(""), Some("a"), Some("b")];
        for made_for in classes {
            for now in classes {
                let digest = digest(made_for, 'a', 'b');
                assert_eq!(is_for_another_class(&digest, now), made_for != now, "{made_for:?}, {now:?}");
            }
        }
        for text in ["", "d1", "00000000", "somebody else's", "0-1-2", "00112233445566778899aabbccddeeff"] {
            assert!(!is_for_another_class(text, None), "{text:?} proves nothing");
        }
    }

    /// A field of a later contract, as an earlier one sees it.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Later {
        #[prost(string, tag = "1000")]
        new: String,
    }

    #[test]
    fn a_new_field_at_its_default_changes_no_digest() {
        let of = |later: Option<Later>| {
            let service = pb::Service { load_balancer_ip: "192.0.2.1".to_owned(), ..pb::Service::default() };
            let mut bytes = service.encode_to_vec();
            if let Some(later) = later {
                bytes.extend(later.encode_to_vec());
            }
            let mut writer = Digester::new("test");
            writer.bytes(&bytes);
            writer.finish()
        };
        assert_eq!(of(Some(Later::default())), of(None));
        assert_ne!(of(Some(Later { new: "used".to_owned() })), of(None));
    }

    #[test]
    fn what_is_no_wish_changes_no_digest() {
        let of = |change: fn(&mut pb::Service)| {
            let labels = ["a", "b", "c", "d"].map(|key| (key.to_owned(), "x".to_owned())).into();
            let mut service = pb::Service { labels, ..pb::Service::default() };
            change(&mut service);
            let mut writer = Digester::new("test");
            writer.service(service);
            writer.finish()
        };
        let plain = of(|_| {});
        let time = || Some(prost_types::Timestamp { seconds: 1, nanos: 0 });
        let answers: [fn(&mut pb::Service); 2] = [
            |service| service.ingress.push(pb::LoadBalancerIngress::default()),
            |service| service.finalizers.push("mine".to_owned()),
        ];
        for change in answers {
            assert_eq!(of(change), plain);
        }
        let mut dated =
            pb::Service { creation_time: time(), deletion_time: time(), ..pb::Service::default() };
        dated.labels = ["d", "c", "b", "a"].map(|key| (key.to_owned(), "x".to_owned())).into();
        let mut writer = Digester::new("test");
        writer.service(dated);
        assert_eq!(writer.finish(), plain, "whatever the order of the labels");
        let wishes: [fn(&mut pb::Service); 4] = [
            |service| _ = service.labels.insert("a".to_owned(), "y".to_owned()),
            |service| _ = service.annotations.insert("a".to_owned(), "x".to_owned()),
            |service| service.load_balancer_class = "c".to_owned(),
            |service| service.allocate_node_ports = Some(false),
        ];
        for change in wishes {
            assert_ne!(of(change), plain);
        }
    }
}
