#include "cli/serve/overview_connection.hpp"

#include <chrono>
#include <utility>

namespace rowlock::cli::serving {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

/// For one statement: tables of tens of millions of rows.
constexpr auto statement_timeout = 30s;
constexpr auto connect_timeout = 5s;

}  // namespace

overview_connection::overview_connection(const database& in)
    : in_{in},
      statements_{in.source.speaks(), sql::statement_options{.tables = in.source.tables()}},
      protocol_{protocol::make_session_protocol(statements_)} {}

template <typename Action>
auto overview_connection::run(Action action) {
    try {
        if (db_ == nullptr) {
            auto opened = in_.source.connect(clock::now() + connect_timeout);
            protocol_->set_up(*opened, statement_timeout, clock::now() + connect_timeout);
            db_ = std::move(opened);
        }
        return action(*db_);
    } catch (...) {
        db_ = nullptr;
        throw;
    }
}

view::snapshot overview_connection::locks() {
    return run([&](sql::connection& db) {
        return view::read(db, statements_, most, clock::now() + statement_timeout);
    });
}

view::sessions_seen overview_connection::sessions() {
    return run([&](sql::connection& db) {
        return view::read_sessions(db, statements_, most, clock::now() + statement_timeout);
    });
}

}  // namespace rowlock::cli::serving
