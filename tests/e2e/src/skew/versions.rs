//! A message as a peer of another version would have written it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use cloudprovider_proto::BASELINE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage as _, Value,
};
use prost_types::{
    DescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto,
};

use super::optional;

/// The number of fields and enum values that only a later version has.
const LATER: i32 = 9_999;
const OURS: &str = "ccm.";

/// How the other side differs from this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skew {
    /// Not at all.
    None,
    /// It has a later version: each message has a field, and each enum a value, that nobody here knows.
    Later,
    /// It has the first released version, without everything that came later.
    First,
    /// It sends nothing that the contract calls optional.
    Bare,
    /// It has a later version in which every enum value of its answers is new, and so unknown.
    NewWords,
}

/// The contract in several versions.
#[derive(Debug, Clone)]
pub struct Versions {
    first: DescriptorPool,
    later: DescriptorPool,
    optional: BTreeSet<String>,
}

/// Request or response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Request,
    Answer,
}

impl Versions {
    /// Built from the committed baseline.
    pub fn of_the_baseline() -> Result<Self> {
        let baseline =
            FileDescriptorSet::decode(BASELINE_DESCRIPTOR_SET).context("the baseline is unreadable")?;
        Ok(Self {
            first: DescriptorPool::from_file_descriptor_set(baseline.clone())?,
            later: DescriptorPool::from_file_descriptor_set(grown(baseline))?,
            optional: optional::fields(),
        })
    }

    /// The message that a peer with this skew would have sent instead; unchanged if the baseline has no such method.
    pub(crate) fn translated(
        &self,
        skew: Skew,
        path: &str,
        direction: Direction,
        message: &[u8],
    ) -> Result<Vec<u8>> {
        let pool = if matches!(skew, Skew::Later | Skew::NewWords) { &self.later } else { &self.first };
        let Some(descriptor) = described(pool, path, direction) else { return Ok(message.to_owned()) };
        if skew == Skew::None || (skew == Skew::NewWords && direction == Direction::Request) {
            return Ok(message.to_owned());
        }
        let mut read = DynamicMessage::decode(descriptor, message)
            .with_context(|| format!("{path}: not a message of the contract"))?;
        match skew {
            Skew::None => {}
            Skew::First => each(&mut read, &mut |message| message.take_unknown_fields().for_each(drop)),
            Skew::Later => each(&mut read, &mut with_later_fields),
            Skew::NewWords => each(&mut read, &mut with_new_words),
            Skew::Bare => each(&mut read, &mut |message| self.bare(message)),
        }
        Ok(read.encode_to_vec())
    }

    fn bare(&self, message: &mut DynamicMessage) {
        let optional: Vec<FieldDescriptor> =
            message.descriptor().fields().filter(|field| self.optional.contains(field.full_name())).collect();
        for field in optional {
            message.clear_field(&field);
        }
    }
}

fn described(pool: &DescriptorPool, path: &str, direction: Direction) -> Option<MessageDescriptor> {
    let (service, name) = path.strip_prefix('/')?.split_once('/')?;
    let method = pool.get_service_by_name(service)?.methods().find(|method| method.name() == name)?;
    Some(match direction {
        Direction::Request => method.input(),
        Direction::Answer => method.output(),
    })
}

/// Translates a message and all messages in it.
fn each(message: &mut DynamicMessage, change: &mut impl FnMut(&mut DynamicMessage)) {
    if !message.descriptor().full_name().starts_with(OURS) {
        return;
    }
    for (_, value) in message.fields_mut() {
        match value {
            Value::Message(inner) => each(inner, change),
            Value::List(list) => {
                list.iter_mut().filter_map(Value::as_message_mut).for_each(|inner| each(inner, change));
            }
            Value::Map(map) => {
                map.values_mut().filter_map(Value::as_message_mut).for_each(|inner| each(inner, change));
            }
            _ => {}
        }
    }
    change(message);
}

fn is_enum(field: &FieldDescriptor) -> bool {
    matches!(field.kind(), Kind::Enum(_))
}

fn with_later_fields(message: &mut DynamicMessage) {
    message.set_field_by_number(LATER.unsigned_abs(), Value::String("of a later version".to_owned()));
    let lists: Vec<FieldDescriptor> =
        message.descriptor().fields().filter(|field| field.is_list() && is_enum(field)).collect();
    for field in lists {
        if let Some(list) = message.get_field_mut(&field).as_list_mut() {
            list.push(Value::EnumNumber(LATER));
        }
    }
}

fn with_new_words(message: &mut DynamicMessage) {
    let words: Vec<FieldDescriptor> =
        message.descriptor().fields().filter(|field| !field.is_list() && is_enum(field)).collect();
    for field in words {
        if message.has_field(&field) {
            message.set_field(&field, Value::EnumNumber(LATER));
        }
    }
}

/// The contract as a later version might have it: one more field in each message, one more value in each enum.
fn grown(mut files: FileDescriptorSet) -> FileDescriptorSet {
    let ours = files.file.iter_mut().filter(|file| file.package().starts_with(OURS.trim_end_matches('.')));
    for file in ours {
        file.message_type.iter_mut().for_each(grow);
        let mut known = file.enum_type.iter_mut();
        known.by_ref().for_each(|one| {
            let name = format!("{}_OF_A_LATER_VERSION", one.name().to_uppercase());
            one.value.push(EnumValueDescriptorProto { name: Some(name), number: Some(LATER), options: None });
        });
    }
    files
}

fn grow(message: &mut DescriptorProto) {
    let is_map = message.options.as_ref().is_some_and(|options| options.map_entry());
    if is_map {
        return;
    }
    message.nested_type.iter_mut().for_each(grow);
    message.field.push(FieldDescriptorProto {
        name: Some("of_a_later_version".to_owned()),
        number: Some(LATER),
        label: Some(field_descriptor_proto::Label::Optional.into()),
        r#type: Some(field_descriptor_proto::Type::String.into()),
        ..FieldDescriptorProto::default()
    });
}

#[cfg(test)]
mod tests {
    use cloudprovider_proto::{discovery::v1::GetInfoResponse, v1alpha1 as pb};

    use super::*;

    const BATCH: &str = "/ccm.cloudprovider.v1alpha1.Instances/BatchGetInstances";
    const CAPABILITIES: &str = "/ccm.cloudprovider.v1alpha1.CloudProvider/GetCapabilities";

    fn answer() -> pb::BatchGetInstancesResponse {
        let instance = pb::Instance {
            provider_id: "mock://a".into(),
            zone: "zone-a".into(),
            labels: [("k".to_owned(), "v".to_owned())].into(),
            ..Default::default()
        };
        let result = pb::InstanceResult {
            key: "a".into(),
            state: pb::InstanceState::Absent.into(),
            authoritative: true,
            instance: Some(instance),
            ..Default::default()
        };
        pb::BatchGetInstancesResponse { results: vec![result] }
    }

    fn skewed<M: prost::Message + Default>(
        skew: Skew,
        path: &str,
        message: &impl prost::Message,
    ) -> (M, Vec<u8>) {
        let versions = Versions::of_the_baseline().unwrap();
        let bytes = versions.translated(skew, path, Direction::Answer, &message.encode_to_vec()).unwrap();
        (M::decode(bytes.as_slice()).unwrap(), bytes)
    }

    #[test]
    fn a_later_version_says_more_and_what_is_known_stays() {
        let (read, bytes) = skewed::<pb::BatchGetInstancesResponse>(Skew::Later, BATCH, &answer());
        assert_eq!(read, answer());
        assert_eq!(
            bytes.windows(4).filter(|word| *word == b"late").count(),
            3,
            "one in each of three messages"
        );
        let capabilities = pb::GetCapabilitiesResponse::default();
        let (read, _) = skewed::<pb::GetCapabilitiesResponse>(Skew::Later, CAPABILITIES, &capabilities);
        assert_eq!(read.capabilities, [LATER]);
    }

    #[test]
    fn the_first_version_says_only_what_it_knew() {
        let (_, later) = skewed::<pb::BatchGetInstancesResponse>(Skew::Later, BATCH, &answer());
        let versions = Versions::of_the_baseline().unwrap();
        let first = versions.translated(Skew::First, BATCH, Direction::Answer, &later).unwrap();
        assert_eq!(first, answer().encode_to_vec());
    }

    #[test]
    fn a_bare_peer_leaves_out_what_is_optional_and_nothing_else() {
        let (read, _) = skewed::<pb::BatchGetInstancesResponse>(Skew::Bare, BATCH, &answer());
        let result = &read.results[0];
        let instance = result.instance.as_ref().unwrap();
        assert_eq!((result.key.as_str(), instance.provider_id.as_str()), ("a", "mock://a"));
        assert_eq!(instance.zone, "");
    }

    #[test]
    fn new_words_are_in_answers_only() {
        let (read, _) = skewed::<pb::BatchGetInstancesResponse>(Skew::NewWords, BATCH, &answer());
        assert_eq!(read.results[0].state, LATER);
        let versions = Versions::of_the_baseline().unwrap();
        let request =
            pb::BatchGetInstancesRequest { view: pb::InstanceView::All.into(), ..Default::default() }
                .encode_to_vec();
        assert_eq!(
            versions.translated(Skew::NewWords, BATCH, Direction::Request, &request).unwrap(),
            request
        );
    }

    #[test]
    fn what_the_baseline_does_not_have_passes() {
        let info = GetInfoResponse { name: "mock".into(), ..Default::default() };
        let (read, _) = skewed::<GetInfoResponse>(Skew::Bare, "/grpc.health.v1.Health/Check", &info);
        assert_eq!(read, info);
    }
}
