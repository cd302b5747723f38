#include "stress/requests.hpp"

#include <set>
#include <string_view>
#include <utility>

namespace stress {
namespace {

constexpr std::string_view before_size = " of ";

std::int64_t size_in(const std::string& note) {
    return std::stoll(note.substr(note.rfind(before_size) + before_size.size()));
}

bool is_request(const std::string& note) {
    return note.find(before_size) != std::string::npos;
}

}  // namespace

std::string note_of_request(std::size_t slot, std::int64_t number, std::size_t size) {
    return "request " + std::to_string(slot) + "." + std::to_string(number) +
           std::string{before_size} + std::to_string(size);
}

void held_parts::see(const holdings& now) {
    for (const auto& [request, its] : now) {
        const auto earlier = before_.find(request);
        if (its.leases > size_in(request.second)) {
            found_.try_emplace(request, "holds " + std::to_string(its.leases));
        } else if (its.waits) {
            found_.try_emplace(request, "holds " + std::to_string(its.leases) + " and waits");
        } else if (earlier != before_.end() && earlier->second.leases < its.leases) {
            found_.try_emplace(request, "held " + std::to_string(earlier->second.leases) +
                                            ", then " + std::to_string(its.leases));
        }
    }
    before_ = now;
}

violations held_parts::found() const {
    violations found;
    for (const auto& [request, what] : found_) {
        const auto& [session, note] = request;
        found.push_back(note + " in session " + std::to_string(session) + " " + what);
    }
    return found;
}

void granted_parts::see(const rowlock::history_record& one) {
    using enum rowlock::history_kind;
    const bool begins = one.kind == granted || one.kind == handed_over || one.kind == taken_over ||
                        one.kind == reclaimed;
    if (begins && is_request(one.note)) ++grants_[one.note][one.name];
}

violations granted_parts::found() const {
    violations found;
    for (const auto& [note, names] : grants_) {
        std::set<int> times;
        std::string text = note + " was granted";
        for (const auto& [name, count] : names) {
            times.insert(count);
            text += " " + name + " " + std::to_string(count) + " x,";
        }
        const bool whole = static_cast<std::int64_t>(names.size()) == size_in(note);
        if (whole && times.size() == 1) continue;
        text.pop_back();
        found.push_back(std::move(text));
    }
    return found;
}

}  // namespace stress
