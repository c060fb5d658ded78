"""Prints the ten sample chats of the model card: python3 samples.py KAIJU_CHAT MODEL"""
import json
import subprocess
import sys

CHATS = [
    ("wren", ["Hello! Who are you?", "What do you grow?", "What are you afraid of?", "My sister is called Ada.", "What is my sister called?"]),
    ("isbel", ["Good evening.", "Where do you live?", "Do you have any animals?", "What is your secret?", "Good night!"]),
    ("silas", ["hi", "how old are you", "what do you do for a living", "what do you like to eat"]),
    ("dumpling", ["What's cooking?", "What is your favourite food?", "I don't like fish.", "Tell me a story."]),
    ("tomasz", ["Hello Tomasz, what do you bake?", "What time do you get up?", "Who taught you?", "Do you like the rain?"]),
    ("odette", ["Good morning, detective.", "What are you working on?", "Who is your best friend?", "What do you hate?"]),
    ("trowel", ["Are you a robot?", "What is your job?", "What's your favourite flower?", "I planted 12 roses today.", "How many roses did I plant?"]),
    ("cindergrove", ["Are you a real dragon?", "How old are you?", "What do you treasure most?", "Can you still breathe fire?"]),
    ("wren", ["I feel sad today.", "My dog died.", "Thank you.", "What was I sad about?"]),
    ("isbel", ["What do you think about love?", "Do you know any good films?", "Why is the sky blue?", "What is two plus two?"]),
]

for seed, (character, said) in enumerate(CHATS, 1):
    command = [sys.argv[1], "--model", sys.argv[2], "--character", character, "--seed", str(seed), "--json"]
    lines = subprocess.run(command + [word for text in said for word in ("--say", text)], check=True, capture_output=True, text=True).stdout.splitlines()
    print("**%s**, seed %d\n" % (character, seed))
    turns = ["> **you:** %s\n>\n> **%s:** %s" % (text, character, json.loads(line)["reply"].replace("\n", "\n> ")) for text, line in zip(said, lines, strict=True)]
    print("\n>\n".join(turns) + "\n")
