#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Labels of the parties in the search for deadlocks. A hold has one: that of the thread that
/// acquired it, or one of its own where threads share it. A queue entry has that of the hold that
/// it becomes, then those of its thread and of the shared holds that its thread uses: they are not
/// released before the entry has been served. Written "first|second|…" in the column `thread`.
namespace rowlock::protocol {

inline constexpr char label_separator = '|';
/// Begins the label of a hold that threads share, and of no thread.
inline constexpr std::string_view label_of_readers = "readers ";

[[nodiscard]] inline std::vector<std::string_view> labels_in(std::string_view list) {
    std::vector<std::string_view> all;
    for (;;) {
        const auto end = list.find(label_separator);
        all.push_back(list.substr(0, end));
        if (end == std::string_view::npos) return all;
        list.remove_prefix(end + 1);
    }
}

/// Of the hold.
[[nodiscard]] inline std::string_view first_label(std::string_view list) {
    return list.substr(0, list.find(label_separator));
}

/// Of the thread; empty if there is none.
[[nodiscard]] inline std::string_view thread_in(std::string_view list) {
    for (const auto each : labels_in(list)) {
        if (!each.starts_with(label_of_readers)) return each;
    }
    return {};
}

}  // namespace rowlock::protocol
