//! Messages of the contract with any content, made from its descriptors.

use std::collections::{HashMap, HashSet};

use prost::Message as _;
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};

use crate::call::answer::messages;

/// The maximum nesting of messages.
const DEEPEST: u8 = 6;

/// Vocabulary of strings: keys that the host asked about, what it may write, and what it must not.
const WORDS: [&str; 50] = [
    "",
    "n0",
    "n1",
    "n2",
    "s0-uid",
    "s1-uid",
    "d",
    "test://n0",
    "test://n1",
    "test://",
    "other://n0",
    "fake://",
    "fake://x0",
    "x0",
    "h0",
    "h0-uid",
    "s0",
    "default",
    "10.0.0.1",
    "10.0.0.1 ",
    "::1",
    "fd00::7",
    "999.0.0.1",
    "10.0.0.0/24",
    "10.0.0.7/24",
    "0.0.0.0/0",
    "fd00::/64",
    "not/a/cidr",
    "example.com",
    "-bad-.example",
    "zone-1",
    "zone 1",
    "kubernetes.io/hostname",
    "cloudprovider.ccm/exclude",
    "cloudprovider.ccm/load-balancer-provider",
    "cloudprovider.ccm/LoadBalancer",
    "node-role.kubernetes.io/control-plane",
    "topology.kubernetes.io/zone",
    "mine",
    "mine.example/id",
    "test.example/id",
    "other.example/id",
    "TCP",
    "RATE_LIMITED",
    "INTERNAL_ERROR",
    "Reason",
    "no reason",
    "\u{0}\u{7}\n",
    "ä\u{202e}",
    "e2",
];

pub(super) struct Grammar {
    messages: HashMap<String, DescriptorProto>,
    enums: HashMap<String, Vec<i32>>,
}

impl Grammar {
    pub(super) fn new() -> Self {
        let set = FileDescriptorSet::decode(cloudprovider_proto::FILE_DESCRIPTOR_SET).unwrap();
        let mut enums = HashMap::new();
        for file in &set.file {
            for one in &file.enum_type {
                let numbers = one.value.iter().map(prost_types::EnumValueDescriptorProto::number).collect();
                enums.insert(format!(".{}.{}", file.package(), one.name()), numbers);
            }
        }
        let messages = messages(&set).into_iter().map(|(name, message)| (name, message.clone())).collect();
        Self { messages, enums }
    }

    /// A message in which most fields are set.
    pub(super) fn message(&self, name: &str, random: &mut fastrand::Rng) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(name, 220, 0, random, &mut bytes);
        bytes
    }

    /// An honest message with much of what it leaves out, and a little of what it holds, invented or dropped. Keys
    /// stay, so that it passes as the answer to the question.
    pub(super) fn graft(&self, name: &str, honest: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
        let Some(message) = self.messages.get(name) else { return honest.to_vec() };
        let (mut bytes, mut said, mut rest) = (Vec::new(), HashSet::new(), honest);
        while let Ok(tag) = prost::encoding::decode_varint(&mut rest) {
            let number = i32::try_from(tag >> 3).unwrap_or_default();
            let field = message.field.iter().find(|field| field.number() == number);
            said.insert(number);
            let length = match tag & 7 {
                0 => rest.iter().position(|byte| byte & 0x80 == 0).map_or(rest.len(), |last| last + 1),
                1 => 8,
                5 => 4,
                _ => usize::try_from(prost::encoding::decode_varint(&mut rest).unwrap_or_default())
                    .unwrap_or_default(),
            };
            let (content, after) = rest.split_at(length.min(rest.len()));
            rest = after;
            match field {
                Some(field) if field.label() == Label::Repeated && random.u8(..20) == 0 => {}
                Some(field) if field.r#type() == Type::Message => {
                    delimited(tag & !7, &self.graft(field.type_name(), content, random), &mut bytes);
                }
                Some(field) if random.u8(..40) == 0 => self.field(field, 150, 0, random, &mut bytes),
                _ if tag & 7 == 2 => delimited(tag & !7, content, &mut bytes),
                _ => {
                    varint(tag, &mut bytes);
                    bytes.extend(content);
                }
            }
        }
        for field in &message.field {
            let most = match (said.contains(&field.number()), field.label()) {
                (true, Label::Repeated) if random.u8(..4) == 0 => 3,
                (true, _) => continue,
                (false, Label::Repeated) => 4,
                (false, _) => 2,
            };
            (0..random.usize(..most)).for_each(|_| self.field(field, 150, 1, random, &mut bytes));
        }
        bytes
    }

    #[allow(clippy::unused_self, reason = "the words are the grammar's")]
    pub(super) fn word(&self, random: &mut fastrand::Rng) -> String {
        match random.u8(..20) {
            0 => "x".repeat(random.usize(..5000)),
            1 => (0..random.usize(..20)).map(|_| random.char(..)).collect(),
            2 => format!("n{}", random.u8(..8)),
            _ => (*random.choice(&WORDS).unwrap_or(&"")).to_owned(),
        }
    }

    fn write(&self, name: &str, density: u8, depth: u8, random: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
        if matches!(name, ".google.protobuf.Duration" | ".google.protobuf.Timestamp") {
            return time(name, random, bytes);
        }
        let Some(message) = self.messages.get(name) else { return };
        for field in &message.field {
            let times = match (random.u8(..) < density, field.label()) {
                (false, _) => 0,
                (true, Label::Repeated) if random.u8(..100) == 0 => random.usize(..300),
                (true, Label::Repeated) => random.usize(..4),
                (true, _) => 1,
            };
            for _ in 0..times {
                self.field(field, density, depth, random, bytes);
            }
        }
    }

    fn field(
        &self,
        field: &FieldDescriptorProto,
        density: u8,
        depth: u8,
        random: &mut fastrand::Rng,
        bytes: &mut Vec<u8>,
    ) {
        let tag = u64::try_from(field.number()).unwrap_or_default() << 3;
        match field.r#type() {
            Type::Message if depth >= DEEPEST => {}
            Type::Message => {
                let mut inner = Vec::new();
                self.write(field.type_name(), density.max(150), depth + 1, random, &mut inner);
                delimited(tag, &inner, bytes);
            }
            Type::String if random.u16(..2000) == 0 => delimited(tag, &[0xff, 0xfe], bytes),
            Type::String | Type::Bytes => delimited(tag, self.word(random).as_bytes(), bytes),
            Type::Double => {
                varint(tag | 1, bytes);
                let pool = [0.0, -1.0, 1e-300, 1e300, f64::NAN, f64::INFINITY, 0.5, 100.0];
                bytes.extend(random.choice(pool).unwrap_or_default().to_le_bytes());
            }
            Type::Enum => {
                let known = self.enums.get(field.type_name()).map_or(&[][..], Vec::as_slice);
                let number = match random.u8(..12) {
                    0 => *random.choice(&[-1, 99, i32::MAX, i32::MIN]).unwrap_or(&0),
                    _ => random.choice(known).copied().unwrap_or_default(),
                };
                varint(tag, bytes);
                varint(i64::from(number).cast_unsigned(), bytes);
            }
            Type::Bool => {
                varint(tag, bytes);
                varint(u64::from(random.bool()), bytes);
            }
            _ => {
                let pool = [0, 1, 2, 7, 80, 500, 65_535, 65_536, u64::from(u32::MAX), u64::MAX];
                varint(tag, bytes);
                varint(random.choice(pool).unwrap_or_default(), bytes);
            }
        }
    }
}

/// A timestamp or duration, from before time to long after it, sometimes a sane one.
fn time(name: &str, random: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    let now = if name.ends_with("Timestamp") { jiff::Timestamp::now().as_second() } else { 3 };
    let seconds = [now, now, now, 0, -1, 1, 3600, i64::MIN, i64::MAX, 253_402_300_800, 3_155_760_000];
    let nanos = [0, 0, 0, 1, 300, -1, 999_999_999, 1_000_000_000, i32::MAX, i32::MIN];
    varint(1 << 3, bytes);
    varint(random.choice(seconds).unwrap_or_default().cast_unsigned(), bytes);
    varint(2 << 3, bytes);
    varint(i64::from(random.choice(nanos).unwrap_or_default()).cast_unsigned(), bytes);
}

fn varint(value: u64, bytes: &mut Vec<u8>) {
    prost::encoding::encode_varint(value, bytes);
}

fn delimited(tag: u64, content: &[u8], bytes: &mut Vec<u8>) {
    varint(tag | 2, bytes);
    varint(content.len() as u64, bytes);
    bytes.extend(content);
}
