//! Tests of descriptors. Miri does not support these system calls.
#![cfg(not(miri))]

use super::*;

use std::io::{PipeReader, PipeWriter, Read, Write};

fn pipe() -> (PipeReader, PipeWriter) {
    std::io::pipe().expect("there are descriptors left")
}

fn read_byte(mut reader: &PipeReader) -> u8 {
    let mut byte = [0];
    reader.read_exact(&mut byte).expect("something was written");
    byte[0]
}

#[test]
fn a_pipe_is_readable_once_something_is_written() {
    let (reader, mut writer) = pipe();
    let mut evaluation = concurrently(async move {
        await_readable(&reader).await.unwrap();
        read_byte(&reader)
    });
    block_on(async {
        wait(milliseconds(2)).await;
        assert!(evaluation.is_waiting());
        writer.write_all(&[8]).unwrap();
        assert_eq!(evaluation.await_result().await, Ok(8));
    });
}

#[test]
fn a_pipe_whose_writer_is_gone_is_readable() {
    let (reader, writer) = pipe();
    drop(writer);
    block_on(await_readable(&reader)).unwrap();
}

#[test]
fn a_full_pipe_is_not_writable_until_it_is_read() {
    let (mut reader, mut writer) = pipe();
    block_on(await_writable(&writer)).unwrap();
    let mut written = 0;
    while block_on(within(milliseconds(1), await_writable(&writer))).is_ok() {
        written += writer.write(&[0; 4096]).unwrap();
    }
    let mut evaluation = concurrently(async move { await_writable(&writer).await.is_ok() });
    block_on(wait(milliseconds(1)));
    assert!(evaluation.is_waiting());
    reader.read_exact(&mut vec![0; written]).unwrap();
    assert_eq!(block_on(evaluation.await_result()), Ok(true));
}

#[test]
fn several_may_wait_for_one_descriptor() {
    let (reader, mut writer) = pipe();
    let reader = Rc::new(reader);
    let evaluations = [0; 3].map(|_| {
        let reader = Rc::clone(&reader);
        concurrently(async move { await_readable(&*reader).await.is_ok() })
    });
    block_on(wait(milliseconds(1)));
    assert_eq!(evaluations[1].conclude_to(false), Ok(()));
    writer.write_all(&[1]).unwrap();
    let results = block_on(async {
        let mut results = Vec::new();
        for evaluation in evaluations {
            results.push(evaluation.await.unwrap());
        }
        results
    });
    assert_eq!(results, [true, false, true]);
}

#[test]
fn a_descriptor_can_be_waited_for_again_and_again() {
    let (reader, mut writer) = pipe();
    for number in 0..20 {
        writer.write_all(&[number]).unwrap();
        block_on(await_readable(&reader)).unwrap();
        assert_eq!(read_byte(&reader), number);
    }
    assert!(block_on(within(milliseconds(1), await_readable(&reader))).is_err());
}

#[test]
fn a_regular_file_is_always_ready() {
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    block_on(await_readable(&file)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(await_readable(&file)).unwrap();
}

#[test]
fn descriptors_are_noticed_while_others_never_rest() {
    let (reader, mut writer) = pipe();
    let busy = concurrently(async {
        loop {
            wait(NEXT_TURN).await
        }
    });
    writer.write_all(&[1]).unwrap();
    block_on(await_readable(&reader)).unwrap();
    assert_eq!(busy.conclude_to(()), Ok(()));
}

#[test]
fn a_wait_for_a_descriptor_ends_when_another_thread_wakes_something() {
    let (reader, _writer) = pipe();
    let watching = concurrently(async move { await_readable(&reader).await.is_ok() });
    let (resumer, mut resumed) = resumption();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(milliseconds(5));
        resumer.resume(3)
    });
    assert_eq!(block_on(resumed.await_result()), Ok(3));
    assert_eq!(thread.join().unwrap(), Ok(()));
    assert!(watching.is_waiting());
    drop(watching);
}

#[test]
fn on_tokio_a_pipe_is_awaited_with_its_reactor() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (reader, mut writer) = pipe();
        let code = ConcurrentProc::on_tokio(|reader: PipeReader| async move {
            await_readable(&reader).await.unwrap();
            read_byte(&reader)
        });
        let evaluation = waiting(code.call_nonblock(reader));
        writer.write_all(&[4]).unwrap();
        assert_eq!(evaluation.await, Ok(4));
        await_writable(&writer).await.unwrap();
    });
}
