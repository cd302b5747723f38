#include "common/tables.hpp"

#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <utility>

namespace bench {

tables::tables(std::string url) : url_{std::move(url)} {
    static std::atomic<int> made = 0;
    prefix_ = fmt::format("rowlock_bench_{}_{}_", ::getpid(), ++made);
    rowlock::migrate(rowlock::open(url_), {.prefix = prefix_});
}

tables::~tables() {
    try {
        rowlock::migrate(rowlock::open(url_), {.prefix = prefix_}, 0);
    } catch (const std::exception& failure) {
        fmt::print(stderr, "cannot remove the tables {}…: {}\n", prefix_, failure.what());
    }
}

rowlock::client_options tables::options() const {
    rowlock::client_options result;
    result.prefix = prefix_;
    return result;
}

}  // namespace bench
