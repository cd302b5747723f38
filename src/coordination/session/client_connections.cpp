#include "coordination/session/client_connections.hpp"

#include "sql/brief_wait.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

/// SQLite has one writer per file. More connections would only compete for its lock, which is not
/// fair; our threads wait for a connection instead.
std::size_t budget_of(const client_context& context) {
    const int wanted = context.options.max_connections;
    return static_cast<std::size_t>(context.traits().one_writer ? std::min(wanted, 2) : wanted);
}

}  // namespace

client_connections::client_connections(client_context& context, hooks use)
    : context_{context},
      hooks_{std::move(use)},
      budget_{budget_of(context)},
      shared_{{.connect = [this](sql::deadline until) { return connect(until); },
               .on_used = [this] { hooks_.on_shared_turn(); }}},
      pool_{{.connect = [this](sql::deadline until) { return make(until); },
             .when_full = "all connections of this client are busy: raise max_connections",
             .on_broken = [this] { broke(); }}} {}

client_connections::borrowed client_connections::take_of(std::size_t budget, sql::deadline until) {
    auto db = pool_.take(budget, until, until);
    (void)drain_pipelined(&*db, until);
    return db;
}

client_connections::borrowed client_connections::take_urgent(sql::deadline until) {
    return pool_.take(budget_ + 2, until, until);
}

std::unique_ptr<sql::connection> client_connections::make(sql::deadline until, rank who) {
    auto db = context_.shares_connection() ? shared_.join(who, until) : connect(until);
    hooks_.on_connected(*db, until);
    return db;
}

std::unique_ptr<sql::connection> client_connections::connect(sql::deadline until) {
    auto db = context_.source.connect(until);
    context_.leases.set_up(*db, context_.options.statement_timeout, until);
    // A heartbeat must not wait for another user's row lock.
    if (context_.shares_connection()) sql::set_short_lock_timeout(*db, until);
    return db;
}

void client_connections::renew() noexcept {
    shared_.renew();  // first: a user that joins from now on joins the new one
    pool_.renew();
}

void client_connections::let_go_of_shared() noexcept {
    if (context_.shares_connection()) pool_.renew();
}

void client_connections::broke() noexcept {
    context_.count(counter::reconnects);
    let_go_of_shared();  // an idle user would keep the broken one open
    hooks_.on_broken();
}

bool client_connections::drain_pipelined(const sql::connection* but, sql::deadline until) noexcept {
    // The user of that connection is about to read them.
    constexpr auto moment = 1ms;
    for (auto on = pipelined_.on(); on != nullptr && on != but; on = pipelined_.on()) {
        try {
            if (const auto its = pool_.take_idle(on)) {
                (*its)->drain(until);
            } else {
                pipelined_.wait(std::min(until, steady::now() + moment));
            }
        } catch (...) {
            // Broken: the release's callback ran when the connection was destroyed.
        }
        if (pipelined_.on() == on && steady::now() >= until) return false;
    }
    return true;
}

}  // namespace rowlock::detail
