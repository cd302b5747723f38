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
    rowlock::migrate(source());
}

tables::~tables() {
    try {
        rowlock::migrate(source(), {}, 0);
    } catch (const std::exception& failure) {
        fmt::print(stderr, "cannot remove the tables {}…: {}\n", prefix_, failure.what());
    }
}

rowlock::sql::connection_source tables::source() const {
    return rowlock::open(url_).with_tables({.prefix = prefix_});
}

}  // namespace bench
