# One Python variant: loads a file some times, touches every page, prints nanoseconds and faults of each and a sum.
import resource

def touched(arrays):
    return sum(int(a[::4096].astype("uint64").sum()) for a in arrays) & (2**64 - 1)

for _ in range(2 if cold else 3):
    if cold:
        dropped(path)
    faults, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter_ns()
    held = load(path)
    total = touched(flat(held))
    took, after = time.perf_counter_ns() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - faults.ru_utime - faults.ru_stime
    # what was dequantised is not compared: it is another dtype than most
    print(took, after.ru_minflt - faults.ru_minflt, int(cpu * 1e9), *[] if "one by one" in name else [total])
    del held
