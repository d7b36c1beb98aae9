//! A message of any RPC, whose parts can be read and changed by type.

use std::borrow::Cow;

use cloudprovider_sdk::proto;
use prost::{Message as _, Name, bytes::Bytes};
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, ReflectMessage as _, Value};
use tonic::Status;

use super::method::{self, Method};

/// A request, an answer, or one frame of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Message(DynamicMessage);

impl Message {
    /// Decodes the request of an RPC; `None` if it cannot be decoded.
    pub(crate) fn request(method: &Method, bytes: Bytes) -> Option<Self> {
        DynamicMessage::decode(method::request(method)?, bytes).ok().map(Self)
    }

    /// Decodes the answer of an RPC.
    ///
    /// # Errors
    ///
    /// It cannot be decoded.
    pub(crate) fn answer(method: &Method, bytes: Bytes) -> Result<Self, Status> {
        let read = method::answer(method).and_then(|is| DynamicMessage::decode(is, bytes).ok());
        read.map(Self).ok_or_else(|| Status::internal("the answer cannot be read"))
    }

    /// An empty answer of an RPC; for a batch, one result for each key, with only the key.
    ///
    /// # Errors
    ///
    /// There is no such RPC.
    pub(crate) fn blank(method: &Method, keys: impl Iterator<Item = String>) -> Result<Self, Status> {
        let mut blank = Self::answer(method, Bytes::new())?;
        let results = blank.0.descriptor().get_field_by_name("results");
        if let Some(Kind::Message(result)) = results.map(|results| results.kind()) {
            let result = |key| {
                let mut result = DynamicMessage::new(result.clone());
                // Every result has its key first.
                let _is_text = result.try_set_field_by_number(1, Value::String(key));
                Value::Message(result)
            };
            blank.set("results", Value::List(keys.map(result).collect()));
        }
        Ok(blank)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        self.0.encode_to_vec()
    }

    /// The text of one of its own fields; empty if it has no such field.
    pub(crate) fn text(&self, field: &str) -> String {
        text(&self.0, field).unwrap_or_default()
    }

    /// Whether it has a field of this name, set or not.
    pub(crate) fn knows(&self, field: &str) -> bool {
        self.0.descriptor().get_field_by_name(field).is_some()
    }

    /// Whether one of its own fields is set.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.0.has_field_by_name(field)
    }

    /// Sets one of its own fields, if it has such a field.
    pub(crate) fn set(&mut self, field: &str, value: Value) {
        let _has_no_such = self.0.try_set_field_by_name(field, value);
    }

    /// The items of one of its own lists, if it has such a list.
    pub(crate) fn list(&mut self, field: &str) -> Option<&mut Vec<Value>> {
        self.0.get_field_by_name_mut(field)?.as_list_mut()
    }

    /// The numbers of the fields that lead to a list of messages or texts: to its first own list, or, if `deep`, to one
    /// inside of a part.
    pub(crate) fn way_to_a_list(&self, deep: bool) -> Option<Vec<u32>> {
        way_to_a_list(&self.0.descriptor(), deep)
    }

    pub(super) fn fields(&self) -> &DynamicMessage {
        &self.0
    }

    /// Uid of the cluster on whose behalf a request is made.
    pub(crate) fn cluster_uid(&self) -> String {
        part(&self.0, "cluster").and_then(|cluster| text(cluster, "uid")).unwrap_or_default()
    }

    /// The epoch of the leader that makes a request.
    pub(crate) fn epoch(&self) -> u64 {
        let epoch = part(&self.0, "fencing").and_then(|fencing| fencing.get_field_by_name("epoch")?.as_u64());
        epoch.unwrap_or_default()
    }

    /// Makes the request on behalf of another cluster.
    pub(crate) fn set_cluster_uid(&mut self, uid: &str) {
        if let Some(cluster) = self.0.get_field_by_name_mut("cluster").and_then(Value::as_message_mut) {
            let _is_text = cluster.try_set_field_by_name("uid", Value::String(uid.to_owned()));
        }
    }

    /// The Service of a request; the first one if it has several.
    pub(crate) fn service(&self) -> Option<proto::ServiceRef> {
        self.first()
    }

    /// The first part of this type, which may be the whole message.
    pub(crate) fn first<T: Name + Default>(&self) -> Option<T> {
        let mut first = None;
        self.clone().each(|found| first = first.take().or_else(|| Some(std::mem::take(found))));
        first
    }

    /// Changes every part of this type, which may be the whole message.
    pub(crate) fn each<T: Name + Default>(&mut self, change: impl FnMut(&mut T)) {
        self.each_where(|_| true, change);
    }

    /// The same, except in parts that are not `meant`.
    pub(crate) fn each_where<T: Name + Default>(
        &mut self,
        meant: impl Fn(&DynamicMessage) -> bool,
        mut change: impl FnMut(&mut T),
    ) {
        walk(&mut self.0, &meant, &mut change);
    }
}

/// The text of a field, if there is such a field.
pub(crate) fn text(message: &DynamicMessage, field: &str) -> Option<String> {
    message.get_field_by_name(field)?.as_str().map(str::to_owned)
}

/// The message in a field, if it is set.
pub(super) fn part<'a>(message: &'a DynamicMessage, field: &str) -> Option<&'a DynamicMessage> {
    match message.get_field_by_name(field)? {
        Cow::Borrowed(value) => value.as_message(),
        Cow::Owned(_unset) => None,
    }
}

fn way_to_a_list(message: &MessageDescriptor, deep: bool) -> Option<Vec<u32>> {
    message.fields().find_map(|field| match field.kind() {
        // What holds one part at most is on the way in any case.
        Kind::Message(part) if deep || !(field.is_list() || field.is_map()) => {
            let inside = way_to_a_list(&part, false)?;
            Some([vec![field.number()], inside].concat())
        }
        Kind::Message(_) | Kind::String | Kind::Bytes if field.is_list() => Some(vec![field.number()]),
        _ => None,
    })
}

fn walk<T: Name + Default>(
    message: &mut DynamicMessage,
    meant: &impl Fn(&DynamicMessage) -> bool,
    change: &mut impl FnMut(&mut T),
) {
    if !meant(message) {
        return;
    }
    if message.descriptor().name() == T::NAME {
        if let Ok(mut found) = message.transcode_to() {
            change(&mut found);
            message.clear();
            // It was decoded as this type, so it can be encoded as it.
            let _written = message.transcode_from(&found);
        }
        return;
    }
    for (_, value) in message.fields_mut() {
        match value {
            Value::Message(inner) => walk(inner, meant, change),
            Value::List(all) => {
                all.iter_mut().filter_map(Value::as_message_mut).for_each(|inner| walk(inner, meant, change));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider_sdk::proto::{BatchGetInstancesResponse, Instance, InstanceResult};

    use super::*;

    #[test]
    fn parts_are_changed_by_their_type_and_unless_they_are_spared() {
        let machine = |id: &str| Some(Instance { provider_id: id.into(), ..Instance::default() });
        let result =
            |key: &str| InstanceResult { key: key.into(), instance: machine(key), ..Default::default() };
        let batch = BatchGetInstancesResponse { results: vec![result("a"), result("b")] };
        let mut message =
            Message::answer(&method::BATCH_GET_INSTANCES, batch.encode_to_vec().into()).unwrap();
        assert_eq!(message.first::<Instance>(), machine("a"));
        assert_eq!(message.first::<proto::Route>(), None);
        let spared = |part: &DynamicMessage| text(part, "key").is_none_or(|key| key != "a");
        message.each_where(spared, |instance: &mut Instance| instance.provider_id.clear());
        let changed = BatchGetInstancesResponse::decode(&*message.encode()).unwrap();
        let ids: Vec<_> = changed.results.into_iter().map(|one| one.instance.unwrap().provider_id).collect();
        assert_eq!(ids, ["a", ""]);
    }
}
