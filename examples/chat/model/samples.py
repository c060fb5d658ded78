"""Prints the ten sample chats of the model card: python3 samples.py KAIJU_CHAT MODEL"""
import json
import subprocess
import sys

CHATS = [
    ("wren", ["Hello! Who are you?", "I've had hiccups since breakfast. Can you help me?", "Is it lonely, living on the road all the time?", "My sister is called Zoë and she collects old maps.", "What is my sister called?"]),
    ("isbel", ["Good evening. I came up all those stairs and I'm quite out of breath.", "Where do you live?", "Do you have any animals?", "My boss shouted at me today in front of everybody.", "Good night, and thank you for the tea!"]),
    ("silas", ["hi", "how old are u", "i missed my train and im so tired lol", "what do u like to eat", "got any good stories?"]),
    ("dumpling", ["What's for dinner tonight?", "I don't like fish.", "I'm a bit homesick, to be honest. I haven't seen my family since spring.", "What is your snail called?", "Tell me a story."]),
    ("tomasz", ["Good morning! It smells wonderful in here.", "What time do you get up?", "I tried to bake bread at home and it came out flat.", "My son starts school tomorrow, and I think I'm more nervous than he is."]),
    ("odette", ["Good morning, detective.", "I've lost my grandmother's ring and I don't know where to start.", "What did you do before you were a detective?", "Have you ever been wrong about somebody?"]),
    ("trowel", ["Are you a robot?", "It rained all morning, and now my tomatoes look so much happier.", "What's your favourite flower?", "I planted 12 roses today.", "How many roses did I plant?"]),
    ("cindergrove", ["Are you a real dragon?", "How old are you?", "Why did you stop burning things?", "Do you ever get bored up here, with nobody to talk to but a robin?"]),
    ("wren", ["I feel sad today.", "My dog died last week, and the house is so quiet now.", "Thank you, that's kind of you.", "What was I sad about?"]),
    ("isbel", ["What do you think about love?", "Do you know any good films?", "Why is the sky blue?", "What is two plus two?"]),
]

for seed, (character, said) in enumerate(CHATS, 1):
    command = [sys.argv[1], "--model", sys.argv[2], "--character", character, "--seed", str(seed), "--json"]
    lines = subprocess.run(command + [word for text in said for word in ("--say", text)], check=True, capture_output=True, text=True).stdout.splitlines()
    print("**%s**, seed %d\n" % (character, seed))
    turns = ["> **you:** %s\n>\n> **%s:** %s" % (text, character, json.loads(line)["reply"].replace("\n", "\n> ")) for text, line in zip(said, lines, strict=True)]
    print("\n>\n".join(turns) + "\n")
