//! Decodes an answer that is no larger than its question warrants, on the wire and in memory.
//!
//! In: the bytes of a message. Out: the message, or `OUT_OF_RANGE`, as for too many bytes. A part of two bytes takes
//! hundreds once decoded, so what the message will take is reckoned first, part by part, from the contract's descriptors.

use std::{collections::HashMap, marker::PhantomData, sync::LazyLock};

use prost::{
    Message,
    bytes::Buf as _,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// For each item: twice what an instance with every label that the host reads takes.
const PER_ITEM: usize = 64 << 10;
/// For what is not about one item: places that could not be reached, for example.
const BESIDES: usize = 1 << 20;
const LARGEST: usize = 64 << 20;

/// The most bytes of an answer about so many items, or of one page.
pub(crate) fn most_bytes(items: Option<usize>) -> usize {
    items.map_or(LARGEST, |items| items.saturating_mul(PER_ITEM).saturating_add(BESIDES).min(LARGEST))
}

/// Encodes like prost; decodes messages that take at most so many bytes.
pub(super) struct Bounded<Q, A> {
    path: &'static str,
    most: usize,
    messages: PhantomData<(Q, A)>,
}

impl<Q, A> Bounded<Q, A> {
    /// For the answers of the method with this path.
    pub(super) fn new(path: &'static str, most: usize) -> Self {
        Self { path, most, messages: PhantomData }
    }
}

impl<Q: Message + 'static, A: Message + Default + 'static> Codec for Bounded<Q, A> {
    type Encode = Q;
    type Decode = A;
    type Encoder = ProstEncoder<Q>;
    type Decoder = BoundedDecoder<A>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<Q, A>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        let prost = ProstCodec::<Q, A>::default().decoder();
        BoundedDecoder { prost, path: self.path, most: self.most }
    }
}

pub(super) struct BoundedDecoder<A> {
    prost: ProstDecoder<A>,
    path: &'static str,
    most: usize,
}

impl<A: Message + Default> Decoder for BoundedDecoder<A> {
    type Item = A;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<A>, Status> {
        // The transport hands over whole messages in one piece.
        let takes = takes(self.path, buffer.chunk());
        if takes > self.most {
            return Err(Status::out_of_range(format!(
                "decoded, the answer takes {takes} bytes, more than {}",
                self.most
            )));
        }
        self.prost.decode(buffer)
    }
}

/// What the parts of an answer take once decoded, but for the texts in them. Bytes that are not a message are left to the decoder.
pub(crate) fn takes(path: &str, answer: &[u8]) -> usize {
    SHAPES.answers.get(path).map_or(0, |shape| SHAPES.takes(*shape, answer))
}

static SHAPES: LazyLock<Shapes> = LazyLock::new(Shapes::of_the_contract);

/// What each message of the contract takes.
#[derive(Default)]
struct Shapes {
    shapes: Vec<Shape>,
    /// By a method's path: its answer's index.
    answers: HashMap<String, usize>,
}

#[derive(Default)]
struct Shape {
    /// Bytes of the message itself, with the messages that it holds in place.
    size: usize,
    fields: Vec<CostlyField>,
}

/// A field that takes memory beside the message, or whose content may.
struct CostlyField {
    number: u32,
    /// Bytes of each element of a list or map; 0 for what the message holds in place.
    each: usize,
    /// The index of the message's shape.
    message: Option<usize>,
}

impl Shapes {
    fn of_the_contract() -> Self {
        // An invariant of the build: the descriptors are its own.
        let set = FileDescriptorSet::decode(cloudprovider_proto::FILE_DESCRIPTOR_SET).unwrap_or_default();
        let messages = messages(&set);
        let (mut shapes, mut known) = (Self::default(), HashMap::new());
        for file in &set.file {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    let answer = shapes.learn(method.output_type(), &messages, &mut known);
                    shapes.answers.insert(path, answer);
                }
            }
        }
        shapes
    }

    /// The index of the message's shape.
    fn learn(
        &mut self,
        name: &str,
        messages: &HashMap<String, &DescriptorProto>,
        known: &mut HashMap<String, usize>,
    ) -> usize {
        if let Some(index) = known.get(name) {
            return *index;
        }
        let index = self.shapes.len();
        known.insert(name.to_owned(), index);
        self.shapes.push(Shape::default());
        let (mut size, mut fields) = (0, Vec::new());
        for field in messages.get(name).into_iter().flat_map(|message| &message.field) {
            let message =
                (field.r#type() == Type::Message).then(|| self.learn(field.type_name(), messages, known));
            let content = match message {
                // A word says whether it is there.
                Some(message) => self.shapes[message].size + 8,
                None => scalar(field),
            };
            let is_list = field.label() == Label::Repeated;
            size += if is_list { size_of::<HashMap<String, String>>() } else { content };
            if is_list || message.is_some() {
                let number = u32::try_from(field.number()).unwrap_or_default();
                fields.push(CostlyField { number, each: if is_list { content } else { 0 }, message });
            }
        }
        self.shapes[index] = Shape { size, fields };
        index
    }

    fn takes(&self, shape: usize, mut message: &[u8]) -> usize {
        let mut total = 0;
        while let Ok((number, wire)) = decode_key(&mut message) {
            let field = self.shapes[shape].fields.iter().find(|field| field.number == number);
            let content = match wire {
                WireType::LengthDelimited => delimited(&mut message),
                _ => skip_field(wire, number, &mut message, DecodeContext::default()).ok().map(|()| &[][..]),
            };
            let Some(content) = content else { break };
            total += field.map_or(0, |field| match field.message {
                Some(shape) => field.each + self.takes(shape, content),
                None if field.each > size_of::<u64>() => field.each,
                // Numbers, of which a field may hold many.
                None => field.each.max(content.len() * size_of::<u64>()),
            });
        }
        total
    }
}

/// Takes the content of a field off the message.
fn delimited<'a>(message: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(decode_varint(message).ok()?).ok()?;
    let (content, rest) = message.split_at_checked(length)?;
    *message = rest;
    Some(content)
}

fn scalar(field: &FieldDescriptorProto) -> usize {
    match field.r#type() {
        Type::String | Type::Bytes => size_of::<String>(),
        _ => size_of::<u64>(),
    }
}

/// All messages by their full names, which begin with a dot.
pub(crate) fn messages(set: &FileDescriptorSet) -> HashMap<String, &DescriptorProto> {
    let mut messages = HashMap::new();
    for file in &set.file {
        let package = format!(".{}", file.package());
        file.message_type.iter().for_each(|message| collect(&package, message, &mut messages));
    }
    messages
}

fn collect<'a>(
    scope: &str,
    message: &'a DescriptorProto,
    messages: &mut HashMap<String, &'a DescriptorProto>,
) {
    let name = format!("{scope}.{}", message.name());
    message.nested_type.iter().for_each(|nested| collect(&name, nested, messages));
    messages.insert(name, message);
}

#[cfg(test)]
mod tests {
    use cloudprovider_proto::v1alpha1 as pb;

    use super::*;
    use crate::method::{BATCH_GET_INSTANCES, GET_CAPABILITIES, LIST_LOAD_BALANCERS, LIST_ROUTES};

    fn one<A: Message>(path: &str, answer: &A) -> usize {
        takes(path, &answer.encode_to_vec())
    }

    #[test]
    fn what_is_reckoned_is_what_rust_takes_or_a_little_more() {
        let entry = size_of::<(String, String)>();
        let instance = pb::BatchGetInstancesResponse { results: vec![Default::default()] };
        let balancer =
            pb::ListLoadBalancersResponse { load_balancers: vec![Default::default()], ..Default::default() };
        let route = pb::ListRoutesResponse { routes: vec![Default::default()], ..Default::default() };
        for (what, reckoned, real) in [
            ("instance", one(BATCH_GET_INSTANCES.path, &instance), size_of::<pb::InstanceResult>()),
            ("balancer", one(LIST_LOAD_BALANCERS.path, &balancer), size_of::<pb::LoadBalancer>()),
            ("route", one(LIST_ROUTES.path, &route), size_of::<pb::Route>()),
        ] {
            assert!((real..2 * real).contains(&reckoned), "{what}: {reckoned}, {real}");
        }
        let labels = |count| {
            let labels = (0..count).map(|number| (format!("label-{number}"), String::new())).collect();
            let instance = Some(pb::Instance { labels, ..Default::default() });
            let result = pb::InstanceResult { instance, ..Default::default() };
            one(BATCH_GET_INSTANCES.path, &pb::BatchGetInstancesResponse { results: vec![result] })
        };
        let label = labels(11) - labels(10);
        assert!((entry..2 * entry).contains(&label), "{label}");
    }

    #[test]
    fn every_part_counts_at_every_depth_and_a_text_does_not() {
        let with = |addresses: usize, text: &str| {
            let addresses =
                vec![pb::NodeAddress { address: text.to_owned(), ..Default::default() }; addresses];
            let instance = Some(pb::Instance { addresses, ..Default::default() });
            let result = pb::InstanceResult { instance, ..Default::default() };
            one(BATCH_GET_INSTANCES.path, &pb::BatchGetInstancesResponse { results: vec![result] })
        };
        assert_eq!(with(3, "10.0.0.1"), with(3, ""));
        assert_eq!(with(3, "") - with(2, ""), with(2, "") - with(1, ""));
        assert!(with(1, "") > with(0, ""));
        // A message that holds its numbers in one field, and one that repeats the field.
        let packed = pb::GetCapabilitiesResponse { capabilities: vec![1; 100], ..Default::default() };
        assert!(one(GET_CAPABILITIES.path, &packed) >= 100 * size_of::<i32>());
        assert!(takes(GET_CAPABILITIES.path, &[0x08, 0x01].repeat(100)) >= 100 * size_of::<i32>());
    }

    #[test]
    fn what_is_no_message_is_left_to_the_decoder() {
        for broken in [&[][..], &[0xff; 20], &[0x0b, 0x0b, 0x0b], &[0x0a, 0x05, 0x01]] {
            assert!(takes(BATCH_GET_INSTANCES.path, broken) < 2000, "{broken:?}");
        }
        assert_eq!(takes("/grpc.health.v1.Health/Check", &[0x0a, 0x00]), 0);
    }

    #[test]
    fn honest_answers_fit() {
        let labels = (0..256).map(|number| (format!("label-{number}"), "v".repeat(63))).collect();
        let addresses = vec![pb::NodeAddress::default(); 64];
        let instance = Some(pb::Instance { labels, addresses, ..Default::default() });
        let result = pb::InstanceResult { instance, ..Default::default() };
        let answer = pb::BatchGetInstancesResponse { results: vec![result; 500] };
        let reckoned = one(BATCH_GET_INSTANCES.path, &answer);
        assert!(2 * reckoned < most_bytes(Some(500)), "{reckoned}");
    }
}
