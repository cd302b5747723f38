#include "metrics/measurements.hpp"

#include "base/utf8.hpp"

namespace rowlock::metrics {
namespace {

constexpr std::size_t longest_class = 64;

}  // namespace

measurements::measurements(classifier class_of)
    : class_of_{std::move(class_of)}, other_{class_of_ ? "other" : ""} {}

class_measurements& measurements::of(const std::string& name) noexcept {
    if (!class_of_) return other_;
    try {
        const std::string found = class_of_(name);
        if (found.empty() || !utf8::is_text(found, longest_class)) return other_;
        if (auto* const known = find_or_add(found)) return *known;
    } catch (...) {
        // The caller's function failed, or there is no memory for a class.
    }
    return other_;
}

template <typename Use>
void measurements::for_each_named(Use use) const {
    for (const auto& slot : named_) {
        auto* const each = slot.load(std::memory_order_acquire);
        if (each == nullptr || use(*each)) return;
    }
}

/// Null if there is no room for another class.
class_measurements* measurements::find_or_add(std::string_view name) {
    class_measurements* found = nullptr;
    const auto is_it = [&](class_measurements& each) {
        if (each.name() == name) found = &each;
        return found != nullptr;
    };
    for_each_named(is_it);
    if (found != nullptr || name == other_.name()) return found;
    const std::lock_guard lock{adding_};
    for_each_named(is_it);
    if (found != nullptr || owned_.size() == most_classes) return found;
    owned_.push_back(std::make_unique<class_measurements>(std::string{name}));
    found = owned_.back().get();
    named_.at(owned_.size() - 1).store(found, std::memory_order_release);
    return found;
}

std::vector<const class_measurements*> measurements::classes() const {
    std::vector<const class_measurements*> all;
    for_each_named([&](const class_measurements& each) {
        all.push_back(&each);
        return false;
    });
    all.push_back(&other_);
    return all;
}

std::uint64_t measurements::losses() const noexcept {
    std::uint64_t all = 0;
    const auto add = [&](const class_measurements& each) {
        for (std::size_t i = 0; i < class_measurements::reasons; ++i) {
            all += each.losses(static_cast<loss_reason>(i));
        }
        return false;
    };
    for_each_named(add);
    static_cast<void>(add(other_));
    return all;
}

}  // namespace rowlock::metrics
