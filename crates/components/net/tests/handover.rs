//! Listeners that are replaced: a program of its own, because the handover concerns the whole process.

use thalweg_net::net::{Address, Announce, Handover, Listener, UnixSocket};

#[tokio::test]
async fn a_client_that_comes_while_a_listener_is_replaced_is_accepted_by_the_next_one() {
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
