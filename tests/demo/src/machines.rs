//! `cargo demo -- --cluster`: the host in a pod on real kubelets, and traffic through the balancer that it gets for a
//! Service, past the loss of a machine.

use anyhow::Result;
use e2e::deploy::operator::{Operator, prepare};
use serde_json::json;
use test_cluster::machines::{MachinesOptions, in_a_room};
use tokio::time::Instant;

use crate::screen::Screen;

pub(crate) fn show(once: bool, screen: &mut Screen) -> Result<()> {
    let again: &[&str] = if once { &["--cluster", "--once"] } else { &["--cluster"] };
    in_a_room(again, prepare, async || tell(once, screen).await)
}

async fn tell(once: bool, screen: &mut Screen) -> Result<()> {
    let begun = Instant::now();
    screen.say(
        "Starting etcd, kube-apiserver and three machines, each with containerd, a kubelet and kube-proxy.",
    );
    let operator = Operator::start(MachinesOptions::of_workers(2)).await?;
    screen.note(&format!("ready after {:.1} s", begun.elapsed().as_secs_f32()));
    show_nodes(&operator, screen)?;

    screen.say("Helm installs the chart. The cloud is a mock at the router in front of the machines.");
    let (_mock, cloud) = operator.installs_with_a_cloud_outside(&json!({})).await?;
    show_nodes(&operator, screen)?;

    screen.say("Somebody makes a Deployment of two pods and a Service of type LoadBalancer.");
    let address = operator.serves_web()?;
    let url = format!("http://{address}/cgi-bin/who");
    let answer = operator.is_answered(&address, "of a pod", |answer| !answer.is_empty()).await?;
    screen.note(&format!("172.30.0.2 $ curl {url}"));
    screen.note(&answer);
    // It answers with the address that it saw, and its name.
    let pod = answer.split(' ').next_back().unwrap_or_default();
    let machine = operator.types(&format!("kubectl get pod {pod} -o jsonpath='{{.spec.nodeName}}'"))?;

    screen.say(&format!("The machine of that pod, {machine}, dies, and the cloud terminates its instance."));
    let begun = Instant::now();
    operator.loses(&machine, &cloud).await?;
    let answer = operator.is_answered(&address, "of the other pod", |answer| !answer.is_empty()).await?;
    screen.note(&format!("172.30.0.2 $ curl {url}"));
    screen.note(&answer);
    screen.note(&format!("answered {:.1} s after the machine died", begun.elapsed().as_secs_f32()));
    operator.waits_for_the_end_of(&machine).await?;
    show_nodes(&operator, screen)?;
    screen
        .note(&format!("the Node was deleted {:.1} s after the machine died", begun.elapsed().as_secs_f32()));

    if once {
        screen.say("Everything was seen to happen.");
        return Ok(());
    }
    screen.say("It stays up until Ctrl-C. From another terminal, as root:");
    if let Some(machine) = operator.machines.all().first() {
        screen.note(&operator.machines.shell(machine));
    }
    Ok(tokio::signal::ctrl_c().await?)
}

fn show_nodes(operator: &Operator, screen: &mut Screen) -> Result<()> {
    let columns = "NAME:.metadata.name,ID:.spec.providerID,ADDRESS:.status.addresses[0].address,TAINTS:.spec.taints[*].key";
    let nodes = operator.types(&format!("kubectl get nodes -o custom-columns='{columns}'"))?;
    nodes.lines().for_each(|line| screen.note(line));
    Ok(())
}
