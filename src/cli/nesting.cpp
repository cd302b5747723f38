#include "cli/nesting.hpp"

#include "base/identity.hpp"
#include "cli/exit_code.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <sstream>

namespace rowlock::cli {
namespace {

constexpr const char* holds_variable = "ROWLOCK_HOLDS";

std::string inherited() {
    const char* const value = std::getenv(holds_variable);
    return value == nullptr ? std::string{} : std::string{value};
}

std::string entry(std::int64_t process, std::int64_t token) {
    return fmt::format("{}:{}", process, token);
}

}  // namespace

bool runs_under_a_hold() noexcept {
    return std::getenv(holds_variable) != nullptr;
}

std::string holds_of_a_command(pid_t holder, std::int64_t token) {
    const std::string above = inherited();
    return above.empty() ? entry(holder, token) : above + ' ' + entry(holder, token);
}

bool is_above_us(const std::string& host, std::int64_t process, std::int64_t token) {
    if (!runs_under_a_hold() || host != base::host_name()) return false;
    std::istringstream above{inherited()};
    for (std::string each; above >> each;) {
        if (each == entry(process, token)) return true;
    }
    return false;
}

void refuse_to_wait_for_ourselves(const std::string& name, const holder_info& holder,
                                  fencing_token token) {
    if (!is_above_us(holder.host, holder.pid, token.value())) return;
    throw failure{usage, fmt::format("{} is held by the `rowlock run` that this command runs "
                                     "under: it would wait for itself",
                                     name)};
}

std::int64_t permits_above(const std::vector<permit_holder>& holders) {
    std::int64_t above = 0;
    for (const auto& each : holders) {
        if (is_above_us(each.who.host, each.who.pid, each.token.value())) above += each.permits;
    }
    return above;
}

failure would_wait_for_itself(const std::string& name) {
    return {usage, fmt::format("{} is held by the `rowlock run` that this command runs under, and "
                               "has no more free: it would wait for itself",
                               name)};
}

void refuse_to_wait_for_ourselves(const lease_info& row) {
    if (row.holder) refuse_to_wait_for_ourselves(row.name, *row.holder, row.token);
}

}  // namespace rowlock::cli
