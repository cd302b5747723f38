#include "pollable.hpp"

#include <memory>

namespace rowlock::sim {
namespace {

constexpr int first_descriptor = 1 << 20;

std::vector<std::unique_ptr<pollable>>& pollables() {
    static std::vector<std::unique_ptr<pollable>> all;
    return all;
}

}  // namespace

int new_pollable() {
    auto& all = pollables();
    all.push_back(std::make_unique<pollable>());
    return first_descriptor + static_cast<int>(all.size()) - 1;
}

pollable* find_pollable(int descriptor) {
    auto& all = pollables();
    if (descriptor < first_descriptor) return nullptr;
    const auto place = static_cast<std::size_t>(descriptor - first_descriptor);
    return place < all.size() ? all[place].get() : nullptr;
}

void forget_pollables() {
    pollables().clear();
}

}  // namespace rowlock::sim
