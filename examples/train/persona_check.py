"""Shows persona samples and checks the generator: separation, determinism, distances, speed."""
import argparse


def show(sample):
    print("#", sample["name"])
    print(sample["card"])
    for role, text, weight in sample["turns"]:
        print("  %s %s" % ("<" if role == "user" else ">", text))
    print()


def main():
    import persona
    parser = argparse.ArgumentParser(description=persona.__doc__)
    parser.add_argument("--show", type=int, default=3, help="print this many samples")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    for i in range(args.show):
        show(persona.sample(args.seed, i))


if __name__ == "__main__":
    main()
