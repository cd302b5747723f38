#include "cli/blockers.hpp"

#include "cli/blocking_view.hpp"
#include "cli/exit_code.hpp"
#include "cli/text.hpp"
#include <rowlock/error.hpp>

#include <fmt/format.h>

#include <utility>

namespace rowlock::cli {
namespace {

using namespace std::chrono_literals;
using detail::blocking_transaction;

std::string names_of(const database& in, const std::vector<blocking_transaction>& all) {
    std::string text;
    for (const auto& each : all) text += (text.empty() ? "" : "; ") + text_of(in, each);
    return text;
}

}  // namespace

std::vector<blocking_transaction> blockers_of(const database& in,
                                              const std::string& name) noexcept {
    try {
        const auto until = std::chrono::steady_clock::now() + 3s;
        return detail::read_blocking_transactions(in.source, name, until).found;
    } catch (const std::exception&) {
        return {};
    }
}

std::string text_of(const database& in, const blocking_transaction& one) {
    std::string text = "a transaction: " + description_of(one);
    if (one.how_to_end.empty()) return text;
    // MySQL's kill is no command of the shell.
    const bool statement = in.source.speaks() != sql::dialect::sqlite;
    return text + (statement ? "; to end it, send the database `" + one.how_to_end + "`"
                             : "; " + one.how_to_end);
}

json to_json(const std::vector<blocking_transaction>& all) {
    json array = json::array();
    for (const auto& one : all) {
        const bool prepared = one.of == blocking_transaction::kind::prepared;
        json object{{"kind", prepared ? "prepared" : "ordinary"},
                    {"pid", one.pid},
                    {"gid", one.gid},
                    {"one_of_several", one.one_of_several},
                    {"user", one.user},
                    {"application", one.application_name},
                    {"state", one.state},
                    {"age_ms", nullptr},
                    {"statement_age_ms", nullptr},
                    {"how_to_end", one.how_to_end}};
        if (one.age) object["age_ms"] = one.age->count();
        if (one.statement_age) object["statement_age_ms"] = one.statement_age->count();
        array.push_back(std::move(object));
    }
    return array;
}

void blocked_statement::look() {
    const auto found = blockers_of(in_, name_);
    if (found.empty()) return;
    // Their ages change, and are no news.
    std::string who;
    for (const auto& each : found) who += fmt::format("{} {};", each.pid, each.gid);
    if (std::exchange(said_, who) == who) return;
    complain(fmt::format("{} waits for {}", name_, names_of(in_, found)));
}

void blocked_statement::rethrow(const std::exception_ptr& thrown) const {
    try {
        std::rethrow_exception(thrown);
    } catch (const error& failed) {
        const bool unknown = failed.kind() == errc::outcome_unknown;
        if (failed.kind() != errc::timed_out && !unknown) throw;
        const auto found = blockers_of(in_, name_);
        if (found.empty()) throw;
        // A server may do later what its client no longer waits for.
        throw failure{unknown ? unreachable : busy,
                      fmt::format("{} is kept by {}; then {}", name_, names_of(in_, found),
                                  unknown ? "look whether it is still held, as no answer came"
                                          : "run the command again: nothing was done")};
    }
}

}  // namespace rowlock::cli
