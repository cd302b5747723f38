#include "base/require.hpp"
#include "sql/connection_memory.hpp"
#include <rowlock/sql/forwarding_connection.hpp>

#include <utility>

namespace rowlock::sql {
namespace {

std::unique_ptr<connection> required(std::unique_ptr<connection> inner) {
    require(inner != nullptr, "a forwarding connection needs a connection to forward to");
    return inner;
}

}  // namespace

forwarding_connection::forwarding_connection(std::unique_ptr<connection> inner)
    : owned_{required(std::move(inner))}, inner_{*owned_} {
    share_memory_of(inner_);
}

forwarding_connection::forwarding_connection(connection& inner) : inner_{inner} {
    share_memory_of(inner_);
}

forwarding_connection::~forwarding_connection() = default;

dialect forwarding_connection::speaks() const noexcept {
    return inner_.speaks();
}

result forwarding_connection::execute(const statement& what, std::span<const value> parameters,
                                      deadline until) {
    return inner_.execute(what, parameters, until);
}

result forwarding_connection::query(std::string_view text, deadline until) {
    return inner_.query(text, until);
}

std::optional<bool> forwarding_connection::transact(std::span<const step> steps,
                                                    std::string_view afterwards, deadline until) {
    return inner_.transact(steps, afterwards, until);
}

bool forwarding_connection::post(const statement& what, std::span<const value> parameters,
                                 deadline until, posted_answer on_answer) {
    return inner_.post(what, parameters, until, std::move(on_answer));
}

bool forwarding_connection::alive() const noexcept {
    return inner_.alive();
}

void forwarding_connection::discard() noexcept {
    inner_.discard();
}

bool forwarding_connection::discarded() const noexcept {
    return inner_.discarded();
}

bool forwarding_connection::keeps_session_state() const noexcept {
    return inner_.keeps_session_state();
}

transaction_state forwarding_connection::transaction() const noexcept {
    return inner_.transaction();
}

int forwarding_connection::socket() const noexcept {
    return inner_.socket();
}

notifications* forwarding_connection::notifications() noexcept {
    return inner_.notifications();
}

std::int64_t forwarding_connection::announced_process() const noexcept {
    return inner_.announced_process();
}

std::uint64_t forwarding_connection::round_trips() const noexcept {
    return inner_.round_trips();
}

}  // namespace rowlock::sql
