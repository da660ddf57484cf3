//! Listeners that are replaced: a program of its own, because the handover concerns the whole process.

use thalweg_net::net::{Address, Announce, Handover, Listener, UnixSocket};

/// Reloads of one process come one after the other.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test]
async fn a_client_that_comes_while_a_listener_is_replaced_is_accepted_by_the_next_one() {
    let _alone = ALONE.lock().await;
    Handover::make_possible();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (address, announce) = (Address::Tcp(free.clone()), Announce::new("in"));
    let bind = || Listener::bind(&address, UnixSocket::default(), &announce);
    let first = bind().await.unwrap();
    let handover = Handover::begin();
    drop(first);
    let client = tokio::net::TcpStream::connect(&free).await.unwrap();
    let next = bind().await.unwrap();
    let (_, name, _) = next.accept().await.unwrap();
    assert_eq!(*name, *client.local_addr().unwrap().to_string());
    drop(handover);
}

#[tokio::test]
async fn a_socket_that_waits_is_not_in_the_way_of_its_port_with_another_host_nor_of_the_next_reload() {
    let _alone = ALONE.lock().await;
    Handover::make_possible();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (one, all) = (free.to_string(), format!("0.0.0.0:{}", free.port()));
    let announce = Announce::new("in");
    let bind =
        async |at: &str| Listener::bind(&Address::Tcp(at.to_owned()), UnixSocket::default(), &announce).await;
    let first = bind(&one).await.unwrap();
    let handover = Handover::begin();
    drop(first);
    let next = bind(&all).await.expect("the listener before it is closed");
    drop(next);
    assert!(std::net::TcpListener::bind(free).is_err(), "the last one waits");
    // The reload after this one tries its addresses.
    drop(handover);
    let again = Handover::begin();
    std::net::TcpListener::bind(free).unwrap();
    drop(again);
}
