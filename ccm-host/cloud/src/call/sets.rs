//! Sends each set of backends once per process, and from then on names it by its digest.
//!
//! In: a message without its set, and the set. Out: the answer. A provider that does not know a digest after all (it
//! forgot the set, or another host displaced it) gets the same message again with all nodes.

use cloudprovider_proto::v1alpha1 as pb;
use prost::{Message as _, bytes::Bytes};

use crate::{
    BackendSet, CloudError, ErrorReason,
    connection::{Link, session::Session},
    method::Rpc,
    sent_sets::Spliced,
};

/// Makes a call about this set, which belongs in the message field with the number `tag`. `items` is the size of a
/// batch.
pub(crate) async fn call<M: Rpc>(
    link: &Link,
    session: &Session,
    items: Option<usize>,
    (tag, set): (u32, &BackendSet),
    message: impl Fn() -> M,
) -> Result<M::Answer, CloudError> {
    let mut is_named = session.sets.has(set).await;
    loop {
        let entry = if is_named { named(set) } else { set.encoded.clone() };
        let answer = link.call(session, items, Spliced { message: message(), tag, entry }).await;
        match &answer {
            Err(error) if error.is(ErrorReason::UnknownBackendSet) => {
                session.sets.lose(set);
                if std::mem::take(&mut is_named) {
                    link.limiter.once_more(M::METHOD).await;
                    continue;
                }
            }
            // Whatever the outcome, the provider read the request.
            Ok(_) | Err(CloudError { reason: Some(_), .. }) if !is_named => session.sets.arrive(set),
            Err(_) if !is_named => session.sets.lose(set),
            _ => {}
        }
        return answer;
    }
}

/// The set by its digest only.
fn named(set: &BackendSet) -> Bytes {
    let set = pb::BackendSet { digest: set.digest.clone(), nodes_omitted: true, ..Default::default() };
    set.encode_to_vec().into()
}
