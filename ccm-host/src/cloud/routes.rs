//! Routes: the list of all routes, and batched changes.

mod changes;
mod delete;
mod ensure;

use cloudprovider_proto::v1alpha1 as pb;
use ipnet::IpNet;

pub(super) use self::{
    changes::{Change, RouteChanges},
    delete::Delete,
    ensure::Ensure,
};
use super::{
    CloudError, Route, RouteList,
    check::{self, Findings},
    link::Link,
    method::{self, Method},
    session::Session,
    walk::{Page, Paged, Walked, walk},
};

pub(super) async fn list(link: &Link, within: &[IpNet]) -> Result<RouteList, CloudError> {
    let all = Routes { within: within.iter().map(ToString::to_string).collect() };
    let Walked { items, complete, unreachable, rejected } = walk(link, &all).await?;
    Ok(RouteList { routes: items, complete, unreachable, rejected })
}

struct Routes {
    within: Vec<String>,
}

impl Paged for Routes {
    type Given = pb::Route;
    type Key = String;
    type Item = Route;

    fn method(&self) -> &'static Method {
        &method::LIST_ROUTES
    }

    async fn page(
        &self,
        link: &Link,
        session: &Session,
        page_size: i32,
        page_token: String,
    ) -> Result<Page<pb::Route>, CloudError> {
        let method = self.method();
        let _permit = link.permit(method).await?;
        let message = pb::ListRoutesRequest {
            cluster: Some(link.config.cluster.message()),
            page_size,
            page_token,
            within: self.within.clone(),
        };
        let mut client = session.routes();
        let page = link
            .call(session, method, None, message, async |request| client.list_routes(request).await)
            .await?;
        let items = page.routes.into_iter().map(|route| session.owned(route)).collect();
        Ok(Page { items, next: page.next_page_token, unreachable: page.unreachable })
    }

    fn read(&self, given: pb::Route, findings: &mut Findings) -> Option<(String, Route)> {
        check::route(given, findings).map(|route| (route.id.clone(), route))
    }
}
