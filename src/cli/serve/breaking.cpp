#include "cli/serve/breaking.hpp"

#include "cli/blockers.hpp"
#include "cli/commands.hpp"
#include "cli/duration.hpp"
#include "cli/named_locks.hpp"
#include "cli/number.hpp"
#include "cli/queue_waiter.hpp"
#include "cli/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace rowlock::cli::serving {
namespace {

using std::chrono::milliseconds;

enum class manner : unsigned char { stop, within, now };

struct order {
    std::string name;
    breakable::kind of{};
    fencing_token token{};
    manner how{};
    request_options terms{};
};

[[noreturn]] void refuse_request(const std::string& what) {
    throw failure{usage, what};
}

std::string text_in(const json& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string()) {
        refuse_request(fmt::format("the request must have a text {}", key));
    }
    return found->get<std::string>();
}

manner manner_named(const std::string& text) {
    if (text == "stop") return manner::stop;
    if (text == "within") return manner::within;
    if (text == "now") return manner::now;
    refuse_request("how must be stop, within or now");
}

fencing_token token_named(const std::string& text) {
    const auto number = to_number(text);
    if (!number) refuse_request("token must be a number, as a text");
    return fencing_token{*number};
}

order order_in(const std::string& request) {
    const auto object = json::parse(request, nullptr, false);
    if (!object.is_object()) refuse_request("the request must be a JSON object");
    order found{.name = text_in(object, "name"),
                .token = token_named(text_in(object, "token")),
                .how = manner_named(text_in(object, "how"))};
    const auto kind = break_kind(text_in(object, "kind"));
    if (!kind) refuse_request("kind must be lease, semaphore or shared_mutex");
    found.of = *kind;
    if (object.contains("reason")) found.terms.reason = text_in(object, "reason");
    if (found.how != manner::within) return found;
    const auto time = object.find("within_ms");
    if (time == object.end() || !time->is_number_integer() || time->get<std::int64_t>() <= 0) {
        refuse_request("within needs within_ms, a whole number above 0");
    }
    found.terms.within = milliseconds{time->get<std::int64_t>()};
    return found;
}

std::string log_line(const order& what, const std::string& from, const std::string& outcome) {
    const auto& why = what.terms.reason;
    return fmt::format("the page of {}, for {} (token {}): {}{}", from, what.name,
                       what.token.value(), outcome, why.empty() ? "" : ", \"" + why + "\"");
}

}  // namespace

json break_hold(const database& in, const std::string& request, const std::string& from) {
    const order wanted = order_in(request);
    client_options options = tool_options();
    options.program = fmt::format("rowlock serve (the page of {})", from);
    client locks{in.source, options};
    named_locks named{locks, wanted.name};
    const auto all = named.holds(wanted.of);
    const auto whom = std::ranges::find_if(all, [&](const breakable& each) {
        return each.token == wanted.token || each.first_token == wanted.token;
    });
    json answer{{"outcome", "gone"}};
    if (whom == all.end()) return answer;
    if (wanted.how == manner::now) {
        const bool taken =
            beside_blockers(in, wanted.name, [&] { return named.force_release(*whom); });
        if (taken) answer["outcome"] = "taken";
    } else if (whom->who.owner.starts_with(owner_of_scripts)) {
        throw failure{busy,
                      "it was taken by `rowlock acquire`, has no process that could be asked to "
                      "stop, and ends in " +
                          to_text(whom->who.remaining) + ": take it now, or wait"};
    } else if (const auto left = beside_blockers(
                   in, wanted.name, [&] { return named.request_release(*whom, wanted.terms); })) {
        answer["outcome"] = "asked";
        answer["within_ms"] = left->count();
    }
    complain(log_line(wanted, from, answer["outcome"].get<std::string>()));
    return answer;
}

}  // namespace rowlock::cli::serving
