#include "cli/serve/feed.hpp"

#include <chrono>
#include <utility>

namespace rowlock::cli::serving {
namespace {

using namespace std::chrono_literals;

/// So often a page hears of the server, and the server of a page that has gone.
constexpr auto silence = 10s;

bool write_event(const std::function<bool(std::string_view)>& write, std::string_view text) {
    return write("data: ") && write(text) && write("\n\n");
}

}  // namespace

bool feed::send(const std::function<bool(std::string_view)>& write) {
    const auto now = from_.after(before_ == nullptr ? 0 : before_->version, silence);
    if (now == nullptr) return !from_.is_stopped() && write(":\n\n");
    const auto before = std::exchange(before_, now);
    return write_event(write, before == nullptr ? now->text : changes_text(*now, *before));
}

}  // namespace rowlock::cli::serving
