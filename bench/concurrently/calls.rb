# What calls cost with Ruby's Concurrently: nanoseconds of CPU time for each execution, a line each, as
# `name<TAB>nanoseconds`. `thalweg-bench evaluations` runs it and prints the figures beside ours.
#
# As in Concurrently's own measurements, garbage is not collected while the time is taken, and calls come in
# batches of a hundred, which is friendlier to it than one at a time: fibers are then reused.
begin
  require 'concurrently'
rescue LoadError => missing
  warn "`#{missing.path}` is missing: `gem install concurrently` brings it"
  exit 2
end

# Since Ruby 3, a method must pass its block on by name.
module Kernel
  private def concurrent_proc(kind = Concurrently::Proc::Evaluation, &block)
    Concurrently::Proc.new(kind, &block)
  end
end

ROUNDS = Integer(ARGV.fetch(1, '5'))
BATCH = 100
SECONDS_A_ROUND = Float(ARGV.fetch(0, '0.2'))

def now
  Process.clock_gettime Process::CLOCK_PROCESS_CPUTIME_ID
end

def nanoseconds_of_one(batch)
  GC.start
  GC.disable
  count = 0
  start = now
  while (taken = now - start) < SECONDS_A_ROUND
    batch.call
    count += BATCH
  end
  GC.enable
  taken / count * 1e9
end

plain = proc {}
ready = concurrent_proc {}
waits = concurrent_proc { wait 0 }
reader, writer = IO.pipe
writer.write 'x'
readable = concurrent_proc { reader.await_readable }

times = ->(&work) { -> { BATCH.times(&work) } }
started = ->(code) { -> { Array.new(BATCH) { code.call_nonblock }.each(&:await_result) } }
detached = ->(code) { -> { Array.new(BATCH) { code.call_detached }.each(&:await_result) } }
forgotten = lambda do |code, turns|
  lambda do
    BATCH.times { code.call_and_forget }
    turns.times { wait 0 }
  end
end

# Scheduled calls that no wait lets run, as in the gem's own measurement. The event loop is emptied after each round.
scheduled = ->(call) { -> { BATCH.times { call.() } } }

contenders = {
  'plain' => times.() { plain.call },
  'fiber' => times.() { Fiber.new {} },
  'call' => times.() { ready.call },
  'call_nonblock' => times.() { ready.call_nonblock },
  'call_detached, scheduled' => scheduled.(-> { ready.call_detached }),
  'call_and_forget, scheduled' => scheduled.(-> { ready.call_and_forget }),
  'call_detached' => detached.(ready),
  'call_and_forget' => forgotten.(ready, 1),
  'call, waits' => times.() { waits.call },
  'call_nonblock, waits' => started.(waits),
  'call_detached, waits' => detached.(waits),
  'call_and_forget, waits' => forgotten.(waits, 2),
  'wait' => -> { BATCH.times { wait 0 } },
  'await_readable' => times.() { reader.await_readable },
  'await_writable' => times.() { writer.await_writable },
  'call, pipe' => times.() { readable.call }
}

results = contenders.transform_values { [] }
(0..ROUNDS).each do |round|
  contenders.each do |name, batch|
    taken = nanoseconds_of_one batch
    results[name] << taken if round > 0
    Concurrently::EventLoop.current.reinitialize! if name.end_with? 'scheduled'
  end
end
results.each { |name, all| puts "#{name}\t#{all.sort[ROUNDS / 2].round(1)}" }
