#include "fiber.hpp"

#include <cxxabi.h>
#include <execinfo.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

// Saves the registers that a function must preserve, and continues on the other stack.
extern "C" void rowlock_sim_switch(void** save, void* load);
asm(R"(
.text
.globl rowlock_sim_switch
.type rowlock_sim_switch,@function
rowlock_sim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

namespace rowlock::sim {
namespace {

constexpr std::size_t saved_registers = 6;
constexpr std::size_t stack_size = std::size_t{512} * 1024;
constexpr std::size_t guard_size = 4096;

fiber* running = nullptr;
fiber* loaded = nullptr;  // whose thread-local variables are in place

/// Stacks are used again: to map one costs more than a short seed.
std::vector<void*>& free_stacks() {
    static std::vector<void*> all;
    return all;
}

void* take_stack() {
    auto& stacks = free_stacks();
    if (!stacks.empty()) {
        void* const last = stacks.back();
        stacks.pop_back();
        return last;
    }
    void* const mapped = ::mmap(nullptr, stack_size + guard_size, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) std::abort();
    ::mprotect(mapped, guard_size, PROT_NONE);
    return static_cast<char*>(mapped) + guard_size;
}

/// The thread-local variables of the program itself, which holds the product. Those of shared
/// libraries are not exchanged; none that matters here keeps its value over a switch.
struct thread_local_block {
    char* address = nullptr;
    std::vector<char> initial;
};

const thread_local_block& thread_local_block_of_program() {
    static const thread_local_block block = [] {
        thread_local_block found;
        const auto read = [](dl_phdr_info* object, std::size_t, void* out) {
            const bool is_program = object->dlpi_name == nullptr || *object->dlpi_name == '\0';
            if (!is_program) return 0;
            auto& to = *static_cast<thread_local_block*>(out);
            for (int i = 0; i < object->dlpi_phnum; ++i) {
                const auto& header = object->dlpi_phdr[i];
                if (header.p_type != PT_TLS) continue;
                to.address = static_cast<char*>(object->dlpi_tls_data);
                to.initial.assign(header.p_memsz, 0);
                const auto* const image =
                    reinterpret_cast<const char*>(object->dlpi_addr + header.p_vaddr);
                std::copy_n(image, header.p_filesz, to.initial.begin());
            }
            return 1;
        };
        ::dl_iterate_phdr(read, &found);
        return found;
    }();
    return block;
}

}  // namespace

fiber::fiber(std::function<void()> code)
    : code_{std::move(code)},
      stack_{take_stack()},
      thread_locals_{thread_local_block_of_program().initial} {
    auto* top = reinterpret_cast<void**>(static_cast<char*>(stack_) + stack_size);
    *--top = nullptr;  // the return address of start(): the end of the frames
    *--top = reinterpret_cast<void*>(&fiber::start);
    for (std::size_t i = 0; i < saved_registers; ++i) *--top = nullptr;
    stack_pointer_ = top;
}

fiber::~fiber() {
    // Also what its code captured, which may be the last owner of much.
    if (!ended_) static_cast<void>(new std::function<void()>{std::move(code_)});
    free_stacks().push_back(stack_);
    if (loaded == this) loaded = nullptr;
}

fiber::exceptions& fiber::current_exceptions() {
    return *reinterpret_cast<exceptions*>(__cxxabiv1::__cxa_get_globals());
}

/// Puts its thread-local variables into place.
void fiber::load() {
    if (loaded == this) return;
    const auto& block = thread_local_block_of_program();
    const auto size = block.initial.size();
    if (loaded != nullptr) std::memcpy(loaded->thread_locals_.data(), block.address, size);
    std::memcpy(block.address, thread_locals_.data(), size);
    loaded = this;
}

void fiber::enter() {
    load();
    const exceptions of_caller = current_exceptions();
    current_exceptions() = exceptions_;
    running = this;
    rowlock_sim_switch(&caller_stack_pointer_, stack_pointer_);
    running = nullptr;
    exceptions_ = current_exceptions();
    current_exceptions() = of_caller;
}

void fiber::leave() {
    rowlock_sim_switch(&stack_pointer_, caller_stack_pointer_);
    while (prints_) {
        std::array<void*, 40> frames{};
        const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
        ::backtrace_symbols_fd(frames.data() + 1, count - 1, STDOUT_FILENO);
        rowlock_sim_switch(&stack_pointer_, caller_stack_pointer_);
    }
}

void fiber::print_stack() {
    std::fflush(stdout);
    prints_ = true;
    enter();
    prints_ = false;
}

void fiber::start() {
    fiber& self = *running;
    try {
        self.code_();
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "sim: a simulated thread threw: %s\n", failure.what());
        std::abort();
    }
    self.code_ = nullptr;
    while (!self.at_exit_.empty()) {
        const auto [destroy, object] = self.at_exit_.back();
        self.at_exit_.pop_back();
        destroy(object);
    }
    self.ended_ = true;
    self.leave();
    std::abort();  // nobody enters a fiber that has ended
}

}  // namespace rowlock::sim
