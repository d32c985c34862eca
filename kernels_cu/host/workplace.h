// Where one host thread runs blocks: their memory, and who watches them.
#pragma once
#include "arena.h"
#include "faults.h"
#include "launch.h"
#include "observer.h"

namespace pagewalk {

class Workplace {
  public:
    explicit Workplace(Launch& launch);
    ~Workplace();
    Workplace(const Workplace&) = delete;
    Workplace& operator=(const Workplace&) = delete;

    bool has_memory() const { return complete_; }
    const Arena& arena() const { return *arena_; }
    bool run(uint64_t number, Watch& watch);  // false if the launch ends with this block

  private:
    void prepare();
    bool prepare_observer();
    void spoil_shared_memory();
    bool has_whole_edges() const;
    void report(const Fault& fault);
    void report_fault(const Fault& fault, Result& result);
    RacingAccess place_of(const Access& access) const;

    Launch& launch_;
    unsigned threads_;
    Arena* arena_;
    SharedMemory shared_;
    unsigned char* dynamic_shared_ = nullptr;
    Observer observer_ = {};
    Block block_ = {};
    bool complete_ = false;
};

}  // namespace pagewalk
