//! The names of the elements that comments describe: descriptors know only numbers.

use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, ServiceDescriptorProto};

// Field numbers of `FileDescriptorProto` and below, as in `descriptor.proto`.
const MESSAGE: i32 = 4;
const ENUM: i32 = 5;
const SERVICE: i32 = 6;
const MEMBER: i32 = 2;

/// For example `Instances.BatchGetInstances` or `Instance.addresses`; the file's package for the file's own comment.
pub(super) fn name(file: &FileDescriptorProto, path: &[i32]) -> String {
    let at = |place: i32| usize::try_from(place).unwrap_or(usize::MAX);
    let (owner, member) = match *path {
        [MESSAGE, message] => (file.message_type.get(at(message)).map(DescriptorProto::name), None),
        [MESSAGE, message, MEMBER, field] => {
            let owner = file.message_type.get(at(message));
            (
                owner.map(DescriptorProto::name),
                owner.and_then(|owner| owner.field.get(at(field))).map(|field| field.name()),
            )
        }
        [ENUM, number] => (file.enum_type.get(at(number)).map(EnumDescriptorProto::name), None),
        [ENUM, number, MEMBER, value] => {
            let owner = file.enum_type.get(at(number));
            (
                owner.map(EnumDescriptorProto::name),
                owner.and_then(|owner| owner.value.get(at(value))).map(|value| value.name()),
            )
        }
        [SERVICE, service] => (file.service.get(at(service)).map(ServiceDescriptorProto::name), None),
        [SERVICE, service, MEMBER, method] => {
            let owner = file.service.get(at(service));
            let method = owner.and_then(|owner| owner.method.get(at(method)));
            (owner.map(ServiceDescriptorProto::name), method.map(|method| method.name()))
        }
        _ => (None, None),
    };
    match (owner, member) {
        (Some(owner), Some(member)) => format!("{owner}.{member}"),
        (Some(owner), None) => owner.to_owned(),
        _ => file.package().to_owned(),
    }
}
