// The rows of svfsc in C++, as `rows.py` gives those of its Python package: JSON with nanoseconds of CPU a call, the medians of
// some rounds. Usage: rows ROUNDS [quick]. `make bench` compiles it with svfsc's own sources, with its locks, at -O3.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <malloc.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "svf.h"

using File = SVFS::SparseVirtualFile;
using Work = std::function<void(File &)>;

static const size_t MEBIBYTE = 1 << 20;
static int rounds;
static std::vector<char> bytes(MEBIBYTE, 'x');
static std::vector<char> into(MEBIBYTE);

static double now(clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static std::unique_ptr<File> empty() { return std::make_unique<File>("file", 0.0); }

static void write(File &file, size_t count, size_t apart, size_t size) {
    for (size_t at = 0; at < count; ++at) file.write(at * apart, bytes.data(), size);
}

static std::unique_ptr<File> written(size_t count, size_t apart, size_t size) {
    auto file = empty();
    write(*file, count, apart, size);
    return file;
}

static void read(File &file, size_t count, size_t apart, size_t size) {
    for (size_t at = 0; at < count; ++at) file.read(at * apart, size, into.data());
}

// The median time of a call. `work` makes `calls` of them with the file that `prepare` makes.
static double measure(const std::function<std::unique_ptr<File>()> &prepare, const Work &work, double calls,
                      clockid_t clock = CLOCK_THREAD_CPUTIME_ID) {
    std::vector<double> times;
    for (int round = 0; round < rounds; ++round) {
        auto file = prepare();
        double start = now(clock);
        work(*file);
        times.push_back((now(clock) - start) / calls);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

// The median time of a call on one file, which the calls do not change.
static double again(File &file, const Work &work, double calls) {
    return measure(empty, [&](File &) { work(file); }, calls);
}

static void list(const char *name, const std::vector<double> &figures) {
    std::printf("\"%s\": [", name);
    for (size_t at = 0; at < figures.size(); ++at) std::printf("%s%.3f", at ? ", " : "", figures[at]);
    std::printf("],\n");
}

static void reads_and_writes(const std::vector<size_t> &sizes) {
    std::vector<double> apart, one, out_apart, out_one;
    auto whole = written(1, 0, MEBIBYTE);
    for (size_t size : sizes) {
        size_t count = MEBIBYTE / size;
        auto file = written(count, size + 1, size);
        apart.push_back(again(*file, [&](File &file) { read(file, count, size + 1, size); }, count));
        one.push_back(again(*whole, [&](File &file) { read(file, count, size, size); }, count));
        out_apart.push_back(measure(empty, [&](File &file) { write(file, count, size + 1, size); }, count));
        out_one.push_back(measure(empty, [&](File &file) { write(file, count, size, size); }, count));
    }
    list("read", apart);
    list("read_one", one);
    list("write", out_apart);
    list("write_one", out_one);
    list("read_whole", {again(*whole, [](File &file) { file.read(0, MEBIBYTE, into.data()); }, 1)});
    list("write_whole", {measure(empty, [](File &file) { file.write(0, bytes.data(), MEBIBYTE); }, 1)});
}

static void needs(size_t records, const std::vector<size_t> &lengths) {
    auto file = empty();
    for (size_t record = 0; record < records; ++record) {
        size_t position = 80 + record * 8004;
        file->write(position, bytes.data(), 4);
        for (size_t step = 0; step < 10; ++step) file->write(position + 4 + step * 800, bytes.data(), 4);
    }
    size_t span = 80 + records * 8004;
    std::vector<double> times;
    for (size_t length : lengths) {
        auto work = [&](File &file) {
            for (size_t at = 0; at < span; at += length) (void)file.need(at, length);
        };
        times.push_back(again(*file, work, (span + length - 1) / length));
    }
    list("need", times);
    list("need_whole", {again(*file, [&](File &file) { (void)file.need(0, span); }, 1)});
    auto blocks = file->blocks();
    auto wanted = blocks;
    for (auto &block : wanted) block.second = 8;
    auto many = [&](File &file) {
        auto copy = wanted;
        (void)file.need_many(copy);
    };
    list("need_many", {again(*file, many, 1)});
    auto has = [&](File &file) {
        for (auto &block : blocks)
            if (!file.has(block.first, 4)) std::abort();
    };
    list("has", {again(*file, has, blocks.size())});
    list("blocks", {again(*file, [](File &file) { (void)file.blocks(); }, 1)});
}

static void weak_spots(size_t islands, size_t blocks) {
    auto gaps = [&] { return written(islands, 16, 8); };
    auto forwards = [&](File &file) {
        for (size_t at = 0; at < islands; ++at) file.write(at * 16 + 8, bytes.data(), 8);
    };
    auto backwards = [&](File &file) {
        for (size_t at = islands; at-- > 0;) file.write(at * 16 + 8, bytes.data(), 8);
    };
    auto descending = [&](File &file) {
        for (size_t at = 8192; at-- > 0;) file.write(at * 8, bytes.data(), 8);
    };
    auto over = [](File &file) { file.write(0, bytes.data(), MEBIBYTE); };
    auto many = [&] { return written(blocks, 16, 8); };
    list("weak", {measure(gaps, forwards, islands), measure(gaps, backwards, islands), measure(empty, descending, 8192),
                  measure([] { return written(2048, 512, 256); }, over, 1),
                  measure(many, [&](File &file) { file.lru_punt(blocks * 8 / 2); }, 1),
                  measure(many, [&](File &file) { file.lru_punt(blocks * 8); }, 1)});
}

static void in_threads(size_t count, const std::function<void()> &work) {
    std::vector<std::thread> threads;
    for (size_t at = 0; at < count; ++at) threads.emplace_back(work);
    for (auto &thread : threads) thread.join();
}

// Wall time until all threads are done, each with all 131,072 positions.
static void threads(const std::vector<size_t> &counts) {
    const size_t calls = MEBIBYTE / 8;
    std::vector<double> joined, apart, reads;
    for (size_t count : counts) {
        auto writes = [&](size_t step) {
            auto work = [&](File &file) { in_threads(count, [&] { write(file, calls, step, 8); }); };
            return measure(empty, work, 1, CLOCK_MONOTONIC);
        };
        joined.push_back(writes(8));
        apart.push_back(writes(9));
        auto file = written(calls, 9, 8);
        auto work = [&](File &) {
            in_threads(count, [&] {
                char into[8];
                for (size_t at = 0; at < calls; ++at) file->read(at * 9, 8, into);
            });
        };
        reads.push_back(measure(empty, work, 1, CLOCK_MONOTONIC));
    }
    list("threads_one", joined);
    list("threads_apart", apart);
    list("threads_read", reads);
}

static void memory(const std::vector<size_t> &sizes) {
    std::vector<double> said, taken;
    for (size_t size : sizes) {
        auto before = mallinfo2();
        auto file = written(MEBIBYTE / size, size + 1, size);
        auto after = mallinfo2();
        said.push_back(file->size_of());
        taken.push_back(double(after.uordblks + after.hblkhd) - double(before.uordblks + before.hblkhd));
    }
    list("size_of", said);
    list("heap", taken);
}

int main(int count, char **arguments) {
    rounds = count > 1 ? std::atoi(arguments[1]) : 5;
    bool quick = count > 2;
    std::vector<size_t> sizes, lengths;
    for (size_t size = 1; size <= 1024; size *= 2) sizes.push_back(size);
    for (size_t length = 32; length <= 16384; length *= 2) lengths.push_back(length);
    std::printf("{");
    reads_and_writes(sizes);
    needs(quick ? 1000 : 23830, lengths);
    weak_spots(quick ? 1024 : 4096, quick ? 8192 : 131072);
    threads({1, 2, 4, 8, 16});
    memory(sizes);
    std::printf("\"version\": \"0.4.1\"}\n");
}
